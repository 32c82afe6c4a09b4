"""Warnings about definitions, over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tagmill.fleet.models import Partition
from tagmill_expressions import documents
from tagmill_expressions.vocabulary import Vocabulary
from tests.support.http import problem
from tests.tags.test_vocabulary import learn_parts, packed

LINT = "/api/v1/definitions/lint"


def lint(client: APIClient, definition: str, **more: Any) -> Any:
    return client.post(LINT, {"definition": definition, **more}, format="json")


def codes(answer: Any) -> list[str]:
    assert answer.status_code in (200, 201), answer.content
    return [warning["code"] for warning in answer.json()["warnings"]]


@pytest.fixture
def learnt(put: Callable[..., None]) -> None:
    """A fleet of one node, and a vocabulary that knows it."""
    xml = "<list><node id='core' class='system'><product>X1</product></node></list>"
    put("a", xml=xml.encode())
    partition = Partition.objects.get()
    words = Vocabulary.of([documents.compose({"lshw": xml})])
    learn_parts(partition, partition.rev, -1, [packed(words)])


def test_a_warning_has_its_columns_and_a_rewrite(viewer: APIClient, learnt: None) -> None:
    answer = lint(viewer, "//node[@class=system]")
    assert answer.status_code == 200
    (warning,) = answer.json()["warnings"]
    assert warning["code"] == "bare_name_for_string"
    assert (warning["column"], warning["end_column"]) == (15, 20)
    assert warning["rewrite"] == "//node[@class='system']"
    assert answer.json()["vocabulary"] == {"documents": 1, "behind": 0}


def test_what_no_document_has_is_told(viewer: APIClient, learnt: None) -> None:
    assert codes(lint(viewer, "//nod")) == ["unknown_name"]
    assert codes(lint(viewer, "//node[@id='cor']")) == ["unknown_value"]
    assert codes(lint(viewer, "//node[@id='core']")) == []


def test_a_check_of_what_does_not_parse_is_an_answer(viewer: APIClient, learnt: None) -> None:
    check = "/api/v1/definitions/check"
    answer = viewer.post(check, {"definition": "//node[@class=\u201csystem\u201d]"}, format="json")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["warnings"], found["error"]["column"]) == ([], 15)
    assert found["error"]["rewrite"] == '//node[@class="system"]'
    found = viewer.post(check, {"definition": "//node[@class=system]"}, format="json").json()
    assert found["error"] is None
    assert [warning["code"] for warning in found["warnings"]] == ["bare_name_for_string"]
    answer = viewer.post(check, {"definition": "1" * 20_000}, format="json")
    problem(answer, 413, "too_large")


def test_without_every_partitions_vocabulary_only_the_form_is_judged(
    viewer: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    answer = lint(viewer, "//nosuchelement")
    assert codes(answer) == []
    assert answer.json()["vocabulary"]["documents"] is None
    assert codes(lint(viewer, "count(//node)")) == ["number_valued"]


def test_a_syntax_error_has_its_column_and_a_caret(viewer: APIClient) -> None:
    found = problem(lint(viewer, "//node[@id='a'"), 400, "invalid_definition")
    assert found["column"] == 15
    line, below = found["caret"].split("\n")
    assert line == "//node[@id='a'"
    assert below.startswith(" " * 14 + "^ ")


def test_tags_answer_with_the_warnings_of_their_definitions(
    operator: APIClient, learnt: None
) -> None:
    fields = {"name": "x", "definition": "//nod"}
    assert codes(operator.post("/api/v1/tags/", fields, format="json")) == ["unknown_name"]
    assert codes(operator.get("/api/v1/tags/x")) == ["unknown_name"]
    changed = operator.patch("/api/v1/tags/x", {"definition": "count(//node)"}, format="json")
    assert codes(changed) == ["number_valued"]
    fixed = operator.patch("/api/v1/tags/x", {"definition": "//product"}, format="json")
    assert codes(fixed) == []
    manual = operator.post("/api/v1/tags/", {"name": "m"}, format="json")
    assert codes(manual) == []


def test_a_preview_answers_with_them_too(operator: APIClient, learnt: None) -> None:
    answer = operator.post("/api/v1/previews", {"definition": "//nod"}, format="json")
    assert [warning["code"] for warning in answer.json()["warnings"]] == ["unknown_name"]


def test_anybody_who_may_read_may_lint(viewer: APIClient, anonymous: APIClient) -> None:
    assert lint(viewer, "//node").status_code == 200
    problem(lint(anonymous, "//node"), 401, "unauthorized")


def test_fields_are_checked(viewer: APIClient) -> None:
    problem(viewer.post(LINT, {}, format="json"), 400, "invalid")
    problem(lint(viewer, "//node", node="a"), 400, "unknown_field")
    problem(lint(viewer, "//node", namespaces={"a": "1", "": "2"}), 400, "invalid_definition")
    problem(lint(viewer, f"'{'x' * 20000}'"), 413, "too_large")


def test_tags_may_have_the_names_of_these_addresses(operator: APIClient) -> None:
    for name in ("lint", "explain"):
        operator.post("/api/v1/tags/", {"name": name, "definition": "//a"}, format="json")
        assert operator.get(f"/api/v1/tags/{name}").json()["definition"] == "//a"
        patched = operator.patch(f"/api/v1/tags/{name}", {"comment": "c"}, format="json")
        assert patched.json()["comment"] == "c"
        assert operator.delete(f"/api/v1/tags/{name}").status_code == 204
