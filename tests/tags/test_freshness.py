"""Counts and the view `node_tag`, against counting one by one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Node, Partition
from tagmill.flows import ingest
from tagmill.matches import staleness
from tagmill.matches.models import EffectiveMatch, Match
from tagmill.tags import assignments, freshness, rebuilds, tags
from tagmill.tags.models import Assignment, Tag
from tagmill_wire import bitmap
from tests.support.fleet import ANY, BARE, GPU, HAS_GPU, carriers, put, true_carriers
from tests.support.workers import a_worker, complete, evaluated, lease_one, work

pytestmark = pytest.mark.django_db

NAMES = [f"n{i}" for i in range(40)]


@pytest.fixture(autouse=True)
def _fleet(db: None, configure: Callable[..., None]) -> None:
    configure(partition_slots=16)
    clusters.create("north")
    clusters.create("south")


def by_hand(tag: Tag) -> set[str]:
    """The tag's live nodes, bit by bit."""
    rows = (
        Match.objects.filter(expression=tag.expression)
        if tag.expression_id
        else Assignment.objects.filter(tag=tag)
    )
    slots = {
        (row.partition_id, slot)
        for row in rows
        for slot in bitmap.slots(bitmap.from_bytes(row.members))
    }
    return {
        item.system_id
        for item in Node.objects.filter(deleted_at=None)
        if (item.partition_id, item.slot) in slots
    }


def check_all() -> None:
    every = list(Tag.objects.all())
    found = freshness.status(every)
    revs = dict(Partition.objects.values_list("id", "rev"))
    for tag in every:
        assert carriers(tag.name) == by_hand(tag), tag.name
        assert found[tag.id].node_count == len(by_hand(tag)), tag.name
        assert found[tag.id].partitions == len(revs)
        target = tag.pending_expression_id or tag.expression_id
        rows = EffectiveMatch.objects.filter(expression_id=target)
        fresh = {row.partition_id for row in rows if row.rev == revs[row.partition_id]}
        assert found[tag.id].pending == (len(revs) - len(fresh) if target else 0), tag.name


@pytest.mark.parametrize("seed", range(4))
def test_status_and_view_are_right_after_any_changes(seed: int) -> None:
    chance = random.Random(seed)
    worker = a_worker()
    tags.create("gpu", definition=HAS_GPU)
    tags.create("any", definition=ANY)
    tags.create("mine")

    def upload() -> None:
        names = chance.sample(NAMES, 6)
        xml = chance.choice([GPU, BARE])
        where = chance.choice(["north", "south"])
        ingest.store([Upload(name, where, probes={"lshw": xml}) for name in names])

    def delete() -> None:
        live = list(Node.objects.filter(deleted_at=None).values_list("system_id", flat=True))
        for name in chance.sample(live, min(3, len(live))):
            ingest.delete(name)

    def assigned() -> None:
        names = chance.sample(NAMES, 8)
        assignments.assign("mine", names[:5], names[5:])

    def evaluate_one() -> None:
        answer, lease = lease_one(worker)
        complete(worker, evaluated(answer, lease))

    def define() -> None:
        tags.update("gpu", definition=chance.choice([HAS_GPU, "//node[@id='core']"]))

    steps = [upload, upload, delete, assigned, evaluate_one, define]
    upload()
    for _ in range(25):
        step = chance.choice([*steps, lambda: rebuilds.request(["gpu"], None)])
        if step is evaluate_one and not _has_work():
            continue
        step()
        check_all()
    work(worker)
    check_all()
    every = Tag.objects.exclude(expression=None).select_related("expression")
    for tag in every:
        assert tag.expression is not None
        assert carriers(tag.name) == true_carriers(tag.expression.text)
    assert {found.state for found in freshness.status(list(every)).values()} == {"ready"}


def _has_work() -> bool:

    return bool(staleness.stale_partitions())


def test_a_node_deleted_during_a_forced_rebuild_is_not_counted() -> None:
    put("a", "b", cluster="north")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    rebuilds.request(["gpu"], None)
    check_all()
    ingest.delete("a")
    check_all()
    assert carriers("gpu") == {"b"}


def test_the_number_of_queries_does_not_depend_on_how_many_tags() -> None:
    put("a", cluster="north")
    for i in range(12):
        tags.create(f"t{i}", definition=f"//a{i}")
    every = list(Tag.objects.all())
    with CaptureQueriesContext(connection) as few:
        freshness.status(every[:1])
    with CaptureQueriesContext(connection) as many:
        freshness.status(every)
    assert len(many) == len(few) <= 5
    assert freshness.status([]) == {}
