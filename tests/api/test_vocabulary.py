"""GET vocabulary: the words of the fleet's documents."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from tagmill.fleet import clusters
from tagmill_expressions import documents
from tagmill_expressions.vocabulary import Vocabulary
from tests.support.fleet import GPU, put, the_partition
from tests.support.http import problem
from tests.tags.test_vocabulary import learn_parts, packed

WORDS = "/api/v1/vocabulary"


@pytest.fixture
def learnt(db: None) -> None:
    clusters.create("north")
    put("a", "b", cluster="north")
    partition = the_partition()
    found = Vocabulary.of([documents.compose({"lshw": GPU.decode()})])
    learn_parts(partition, partition.rev, -1, [packed(found)])


def test_values_of_an_attribute(learnt: None, viewer: APIClient) -> None:
    found = viewer.get(WORDS, {"under": "node/@class", "prefix": "Dis"}).json()
    assert found == {
        "results": [{"kind": "value", "name": "display", "documents": 1}],
        "truncated": False,
        "complete": True,
        "documents": 1,
        "behind": 0,
    }


def test_what_nobody_has_learnt_is_not_made_up(db: None, viewer: APIClient) -> None:
    clusters.create("north")
    put("a", cluster="north")
    found = viewer.get(WORDS).json()
    assert (found["results"], found["complete"], found["documents"]) == ([], False, None)


def test_questions_are_bounded(db: None, viewer: APIClient) -> None:
    assert problem(viewer.get(WORDS, {"prefix": "x" * 513}), 400, "invalid")["field"] == "prefix"
    assert problem(viewer.get(WORDS, {"limit": 1001}), 400, "invalid")["field"] == "limit"
    problem(viewer.get(WORDS, {"begins": "x"}), 400, "unknown_field")
