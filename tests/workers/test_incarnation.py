"""A rev means something in one incarnation of the database, and for one image as it was planned."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tagmill_wire.messages import Definition, LeasedPartition, StaleExpression
from tagmill_worker import job as jobs
from tagmill_worker.pages import Page
from tagmill_worker.store import Store
from tests.workers.mockapi import problem
from tests.workers.running import polled, run
from tests.workers.test_completer import Sender, Server
from tests.workers.test_worker import Rig, members


async def _worked(rig: Rig) -> None:
    """It holds partition 1, which has one node at rev 1."""
    rig.partition(1, ["<node/>"])
    rig.api.expressions = {7: "/node", 8: "//node"}
    rig.api.work.append({1: {7: None}})
    rig.start()
    await rig.results(1)
    assert members(rig, 7, 1) == [0]


def _restore(rig: Rig) -> None:
    """The same revs, of other documents, in another history."""
    rig.partition(1, ["<list/>", "<list/>"])
    rig.api.matches.clear()
    rig.api.registration["incarnation"] = "second"


@pytest.mark.parametrize("call", ["heartbeat", "lease", "complete", "batch"])
def test_what_was_held_in_another_incarnation_is_dropped(call: str) -> None:
    """Whichever call hears of it first."""

    async def story() -> None:
        rig = Rig()
        if call == "heartbeat":
            rig.api.registration["heartbeat_seconds"] = 1
        await _worked(rig)
        # A node more, so that there is something to fetch.
        rig.api.partitions[1].put(1, "<node/>")
        if call == "lease":
            _restore(rig)
        else:

            def refused(request: Any) -> Any:
                _restore(rig)
                return problem(410, "incarnation_changed")(request)

            rig.api.faults[call].append(refused)
        if call != "heartbeat":
            rig.api.enqueue({1: {7: None}})
        await rig.api.until(lambda: len(rig.api.registered) == 2)
        rig.api.enqueue({1: {7: None}})
        await rig.results(2)
        await rig.stop()
        assert members(rig, 7, 1) == []
        assert "since" not in rig.api.pages[-1]

    run(story())


def test_a_result_is_of_the_rev_that_was_planned_although_the_image_moved_on() -> None:
    """The child is stopped while the same image is brought forward for another lease."""

    async def story() -> None:
        rig = Rig()
        await _worked(rig)
        child = rig.worker.evaluator.pid or 0
        os.kill(child, signal.SIGSTOP)
        rig.api.enqueue({1: {8: None}})
        await polled(rig.reactor, lambda: rig.worker.evaluator.backlog == 1)
        rig.api.partitions[1].put(0, "<list/>")
        rig.api.enqueue({1: {7: 1}})
        await polled(rig.reactor, lambda: rig.worker.evaluator.backlog == 2)
        os.kill(child, signal.SIGCONT)
        await rig.results(3)
        await rig.stop()
        by_expression: dict[int, Any] = {
            match.expression: result.rev
            for result in rig.api.results[1:]
            for match in result.matches
        }
        assert by_expression == {8: 1, 7: 2}
        assert (members(rig, 8, 1), members(rig, 7, 1)) == ([0], [])

    run(story())


def test_a_plan_keeps_what_the_image_was() -> None:
    store = Store(1 << 20, lambda: 0.0)
    store.admit(1, [Page(1, 10, None, False, b"x" * 9)])
    lease = LeasedPartition("l", 1, "c", 10, 64, [StaleExpression(7, None)], vocabulary_rev=11)
    job = jobs.plan(lease, {"7": Definition("true()", {})}, store.get(1), "first")
    store.apply(1, [Page(1, 12, None, False, b"x" * 9)])
    assert store.get(1) is job.held
    assert (job.rev, job.since, job.learns_held) == (10, 10, False)
    assert job.result().rev == 10


def test_results_go_in_the_incarnation_that_they_are_of() -> None:
    server = Server(lambda _: None)
    sender = Sender(server)
    sender.add(1, 500)
    sender.add(2, 500, "second")
    sender.add(3, 500, "second")
    sender.add(4, 500)
    server.open()
    assert server.requests == [[1], [2, 3], [4]]
    assert server.incarnations == ["first", "second", "first"]


def test_results_of_another_incarnation_that_wait_are_forgotten() -> None:
    server = Server(lambda _: None)
    sender = Sender(server)
    sender.add(1, 500)
    sender.add(2, 500)
    sender.completer.keep("second")
    sender.add(3, 500, "second")
    server.open()
    # The first was on its way: it names its own incarnation, and the server refuses it.
    assert (server.requests, server.incarnations) == ([[1], [3]], ["first", "second"])
