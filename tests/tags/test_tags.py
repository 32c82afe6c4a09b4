"""Tags and their definitions: pending, published, dropped, and assigned by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tagmill.errors import (
    AlreadyExists,
    AutomaticTag,
    Invalid,
    InvalidDefinition,
    KindChange,
    NotFound,
)
from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.matches.models import Expression
from tagmill.tags import assignments, freshness, members, rebuilds, tags
from tagmill.tags.models import Assignment, Tag
from tests.support.fleet import ANY, BARE, HAS_GPU, carriers, north, put, tag
from tests.support.workers import a_worker, complete, evaluated, lease_one, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fleet(db: None, configure: Callable[..., None]) -> None:
    """Two partitions: a to h, and i, j. Only b and j are bare."""
    configure(partition_slots=8)
    north(*"abcdefghij")
    put("b", "j", xml=BARE)


GPUS = set("acdefghi")


def status(name: str) -> freshness.TagStatus:
    found = tag(name)
    return freshness.status([found])[found.id]


def test_a_new_definition_is_published_when_it_is_evaluated_everywhere() -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    assert carriers("gpu") == set() and status("gpu").state == "building"
    assert (status("gpu").partitions, status("gpu").pending) == (2, 1)
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    assert carriers("gpu") == GPUS
    assert (status("gpu").state, status("gpu").node_count) == ("ready", 8)
    assert tag("gpu").pending_expression is None


def test_the_old_set_stays_until_the_new_one_is_complete() -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    work(worker)
    tags.update("gpu", definition=ANY)
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    assert carriers("gpu") == GPUS and status("gpu").node_count == 8
    assert (status("gpu").state, status("gpu").pending) == ("building", 1)
    work(worker)
    assert carriers("gpu") == set("abcdefghij") and status("gpu").node_count == 10


def test_the_published_definition_again_drops_what_is_pending() -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    published = tag("gpu").expression
    tags.update("gpu", definition=ANY)
    tags.update("gpu", definition=HAS_GPU)
    assert (tag("gpu").expression, tag("gpu").pending_expression) == (published, None)
    assert [item.state for item in tag("gpu").rebuilds.order_by("id")] == ["complete", "superseded"]
    assert status("gpu").state == "ready"
    work(a_worker(name="again"))
    assert carriers("gpu") == GPUS


def test_a_second_new_definition_supersedes_the_first() -> None:
    tags.create("gpu", definition=HAS_GPU)
    tags.update("gpu", definition=ANY)
    assert [item.state for item in tag("gpu").rebuilds.order_by("id")] == ["superseded", "running"]
    work(a_worker())
    assert carriers("gpu") == set("abcdefghij")
    assert [item.state for item in tag("gpu").rebuilds.order_by("id")] == ["superseded", "complete"]


def test_the_pending_definition_again_changes_nothing() -> None:
    tags.create("gpu", definition=HAS_GPU)
    tags.update("gpu", definition=HAS_GPU)
    assert [item.state for item in tag("gpu").rebuilds.all()] == ["running"]


def test_a_definition_that_is_fresh_everywhere_is_published_at_once() -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    tags.create("twin", definition=HAS_GPU)
    assert carriers("twin") == GPUS
    assert tag("twin").rebuilds.get().state == "complete"


def test_a_shared_expression_that_is_stale_is_waited_for() -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    put("b")
    tags.create("twin", definition=HAS_GPU)
    assert carriers("twin") == set() and tag("twin").rebuilds.get().state == "running"
    work(a_worker(name="again"))
    assert carriers("twin") == GPUS | {"b"}


def test_without_partitions_a_definition_is_published_at_once() -> None:
    for name in "abcdefghij":
        ingest.delete(name)
    delete_cluster(clusters.Cluster.objects.get())
    tags.create("gpu", definition=HAS_GPU)
    assert tag("gpu").pending_expression is None and status("gpu").state == "ready"


def test_a_partition_made_meanwhile_is_waited_for() -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    first = [lease_one(worker) for _ in range(2)]
    put(*"klmnopqrst")
    complete(worker, *(evaluated(*item) for item in first))
    assert carriers("gpu") == set()
    assert tag("gpu").rebuilds.get().state == "running"
    work(worker)
    assert carriers("gpu") == GPUS | set("klmnopqrst")
    assert tag("gpu").rebuilds.get().state == "complete"


def test_a_manual_tag_that_becomes_automatic_keeps_its_nodes_until_the_new_ones_are_known() -> None:
    tags.create("mine")
    assignments.assign("mine", ["a", "b"], [])
    tags.update("mine", definition=HAS_GPU, kind="automatic")
    with pytest.raises(AutomaticTag):
        assignments.assign("mine", ["c"], [])
    assert carriers("mine") == {"a", "b"}
    assert (status("mine").state, status("mine").node_count) == ("building", 2)
    assert Assignment.objects.exists()
    work(a_worker())
    assert carriers("mine") == GPUS and status("mine").node_count == 8
    assert not Assignment.objects.exists()


def test_cancelling_its_first_definition_makes_a_tag_manual_again() -> None:
    tags.create("mine")
    assignments.assign("mine", ["a", "b"], [])
    tags.update("mine", definition=HAS_GPU, kind="automatic")
    rebuilds.cancel(tag("mine").rebuilds.get().uuid)
    assert tag("mine").pending_expression is None
    assert carriers("mine") == {"a", "b"} and status("mine").state == "ready"
    assignments.assign("mine", ["c"], ["a"])
    assert carriers("mine") == {"b", "c"}


def test_an_automatic_tag_cannot_lose_its_definition() -> None:
    tags.create("gpu", definition=HAS_GPU)
    for changes in ({"definition": None}, {"definition": ""}):
        with pytest.raises(KindChange):
            tags.update("gpu", **changes)


def test_namespaces_alone_are_a_new_definition() -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    tags.update("gpu", namespaces={"x": "urn:x"})
    pending = tag("gpu").pending_expression
    assert pending is not None and (pending.text, pending.namespaces) == (HAS_GPU, {"x": "urn:x"})
    with pytest.raises(Invalid):
        tags.create("mine", namespaces={"x": "urn:x"})


def test_names_conflict_when_tags_are_made_and_renamed() -> None:
    tags.create("one")
    tags.create("two")
    with pytest.raises(AlreadyExists):
        tags.create("one")
    with pytest.raises(AlreadyExists):
        tags.update("one", name="two", comment="lost")
    assert tag("one").comment == ""
    assert tags.update("one", name="three", comment="kept").comment == "kept"
    assert tags.update("three", name="three").name == "three"
    for name in ("", "a b", "a\n", "x" * 257, "ü"):
        with pytest.raises(Invalid):
            tags.update("two", name=name)
    with pytest.raises(NotFound):
        tags.update("one", comment="x")


def test_what_cannot_be_stored_leaves_nothing_behind() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        tags.create("gpu", definition="//node[")
    assert caught.value.extra["column"] > 1
    with pytest.raises(Invalid):
        tags.create("gpu", definition=ANY, namespaces={"x": "a\0b"})
    assert not Tag.objects.exists() and not Expression.objects.exists()


def test_a_deleted_tag_ends_its_rebuild_and_its_membership() -> None:
    tags.create("gpu", definition=HAS_GPU)
    rebuild = tag("gpu").rebuilds.get()
    tags.delete("gpu")
    rebuild.refresh_from_db()
    assert rebuild.finished_at is not None
    with pytest.raises(NotFound):
        tags.delete("gpu")


# -- membership's entity tag -----------------------------------------------------------------------


def etag(name: str) -> str:
    return members.etag(tag(name))


def _evaluate_again() -> None:
    put("a", xml=BARE)
    work(a_worker(name="again"))


def _redefine() -> None:
    tags.update("gpu", definition=ANY)
    work(a_worker(name="again"))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("a node is deleted", lambda: ingest.delete("a")),
        ("a node is renamed", lambda: ingest.store([ingest.Upload("a", hostname="x")])),
        ("a node is made", lambda: put("z")),
        ("all is evaluated again", _evaluate_again),
        ("a definition is published", _redefine),
    ],
)
def test_an_entity_tag_changes_with_what_changes_the_list(
    what: str, change: Callable[[], Any]
) -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    before = etag("gpu")
    change()
    assert etag("gpu") != before


def test_an_entity_tag_stays_with_what_leaves_the_list_alone() -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    before = etag("gpu")
    tags.update("gpu", comment="x", name="graphics")
    tags.create("other", definition=ANY)
    work(a_worker(name="again"))
    put("a")
    assert etag("graphics") == before


def test_the_entity_tag_of_a_manual_tag_follows_its_assignments() -> None:
    tags.create("mine")
    tags.create("other")
    seen = {etag("mine")}
    assignments.assign("mine", ["a"], [])
    seen.add(etag("mine"))
    assignments.assign("other", ["a"], [])
    seen.add(etag("mine"))
    assignments.assign("mine", ["j"], ["a"])
    seen.add(etag("mine"))
    assert len(seen) == 3


# -- assigned by hand ------------------------------------------------------------------------------


def test_assigning_counts_what_changed_and_names_what_it_does_not_know() -> None:
    tags.create("mine")
    assert assignments.assign("mine", ["a", "j", "a", "nobody", "x\0"], ["b"]) == {
        "added": 2,
        "removed": 0,
        "unknown": ["nobody", "x\0"],
    }
    assert assignments.assign("mine", ["a", "c"], ["j", "b"]) == {
        "added": 1,
        "removed": 1,
        "unknown": [],
    }
    assert carriers("mine") == {"a", "c"} and status("mine").node_count == 2


def test_assigning_refuses_contradictions_and_tags_that_are_not_there() -> None:
    tags.create("mine")
    with pytest.raises(Invalid):
        assignments.assign("mine", ["a"], ["a"])
    with pytest.raises(NotFound):
        assignments.assign("yours", ["a"], [])
