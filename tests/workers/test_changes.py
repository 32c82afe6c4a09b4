"""Leases that bring along what has changed: it is not fetched, and hides nothing newer."""

from __future__ import annotations

import base64

import pytest
import zstandard
from msgspec.structs import replace

from tagmill_wire.messages import (
    CHANGES_SINCE,
    Batch,
    BatchNode,
    Changes,
    Definition,
    LeasedPartition,
    StaleExpression,
    dump,
)
from tagmill_worker.errors import ProtocolError
from tagmill_worker.job import Job, plan
from tagmill_worker.store import Image
from tests.workers.mockapi import Partition
from tests.workers.running import only_kernel, run, with_one
from tests.workers.test_worker import Rig, members

pytestmark = pytest.mark.usefixtures("evaluator")
DEFINITIONS = {"7": Definition("//node", {})}


async def holding(documents: list[str]) -> tuple[Rig, Partition]:
    """A worker that has evaluated the partition whole."""
    rig = Rig()
    rig.api.registration["protocol"] = CHANGES_SINCE
    rig.api.brings = True
    partition = rig.partition(1, documents)
    rig.api.expressions = {7: "//node"}
    rig.api.work.append({1: {7: None}})
    rig.start()
    await rig.results(1)
    return rig, partition


@with_one
def test_what_a_lease_brings_along_is_not_fetched_and_is_held_from_then_on() -> None:
    async def story() -> None:
        rig, partition = await holding(["<list/>", "<list><node/></list>", "<list/>"])
        base = partition.rev
        partition.put(0, "<list><node/></list>")
        partition.put(1, None)
        rig.api.enqueue({1: {7: base}})
        await rig.results(2)
        assert members(rig, 7, 1) == [0]
        assert (rig.api.results[1].rev, rig.api.results[1].documents) == (partition.rev, 1)
        assert len(rig.api.pages) == 1
        assert rig.api.asked[0].changes is True
        # Nothing has changed, and every node is asked for: of what is held.
        rig.api.matches[7, 1] = (-1, 0)
        rig.api.enqueue({1: {7: None}})
        await rig.results(3)
        await rig.stop()
        assert members(rig, 7, 1) == [0]
        assert [page.get("since") for page in rig.api.pages[1:]] in ([], [partition.rev])

    run(story())


@with_one
def test_what_was_settled_elsewhere_is_not_taken_for_held() -> None:
    async def story() -> None:
        rig, partition = await holding(["<list/>", "<list/>"])
        held = partition.rev
        partition.put(0, "<node/>")
        # The server has evaluated that change itself.
        rig.api.matches[7, 1] = (partition.rev, 0b01)
        base = partition.rev
        partition.put(1, "<node/>")
        rig.api.enqueue({1: {7: base}})
        await rig.results(2)
        assert members(rig, 7, 1) == [0, 1] and len(rig.api.pages) == 1
        rig.api.matches[7, 1] = (-1, 0)
        rig.api.enqueue({1: {7: None}})
        await rig.results(3)
        await rig.stop()
        assert members(rig, 7, 1) == [0, 1]
        assert [page["since"] for page in rig.api.pages[1:]] == [held]

    run(story())


def lease(base: int | None, changes: Changes, **more: int) -> LeasedPartition:
    named = [StaleExpression(7, base)]
    return LeasedPartition("l", 1, "c", changes.rev, 64, named, changes=changes, **more)


def brought(since: int, rev: int) -> Changes:
    batch = Batch(1, rev, [BatchNode(0, rev, {"lshw": "<node/>"})], None)
    return Changes(since, rev, base64.b64encode(zstandard.compress(dump(batch))).decode())


def planned(leased: LeasedPartition, held: int | None) -> Job:
    return plan(leased, DEFINITIONS, None if held is None else Image(held, [], 0, 0), "first")


@only_kernel
def test_an_image_is_brought_forward_unless_that_left_something_out_or_hid_it() -> None:
    changes = brought(since=5, rev=8)
    for held, is_kept in [(None, False), (4, False), (5, True), (7, True), (8, True), (9, False)]:
        job = planned(lease(5, changes), held)
        assert (job.since, job.deltas, job.full) == (5, {7: 5}, [])
        assert (job.held is not None) is is_kept, held
        assert job.brought is not None and not job.is_current
    job = planned(lease(5, changes), 5)
    assert job.held is not None and not job.is_overtaken
    # Another job was quicker, with a page that is newer.
    job.held.rev = 9
    assert job.is_overtaken


@only_kernel
def test_what_is_not_enough_is_not_used() -> None:
    changes = brought(since=5, rev=8)
    for leased in (
        lease(None, changes),
        lease(4, changes),
        lease(5, changes, vocabulary_rev=5),
    ):
        assert planned(leased, 4).brought is None
    for data in ("?", "AAAA"):
        with pytest.raises(ProtocolError):
            planned(lease(5, replace(changes, data=data)), None)
    job = planned(lease(5, replace(changes, data="")), 5)
    assert job.brought is not None and job.brought.is_empty
    job.without_held()
    assert job.brought is None and job.full == [7]
