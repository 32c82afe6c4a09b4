"""A worker's share: asked for, warmed, told of anew, and left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workers.mockapi import problem
from tests.workers.running import polled, run, with_one
from tests.workers.test_worker import Rig, members

pytestmark = [pytest.mark.usefixtures("evaluator"), with_one]


def rig_of(*options: str, partitions: int = 3) -> Rig:
    made = Rig(*options)
    made.api.registration["protocol"] = 4
    for key in range(1, partitions + 1):
        made.partition(key, [f"<node><a{slot}/></node>" for slot in range(4)])
    made.api.share = (1, list(range(1, partitions + 1)))
    return made


def is_ready(rig: Rig) -> bool:
    return any(asked.ready for asked in rig.api.shares)


def test_a_worker_warms_its_share_and_then_says_that_it_is_ready() -> None:
    async def story() -> None:
        rig = rig_of()
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        first, second = rig.api.shares
        assert (first.worker, first.room, first.ready, first.former) == (
            "worker-1",
            512 * 2**20,
            False,
            None,
        )
        assert second.ready
        assert len(rig.api.pages) == 3
        assert rig.value("tagmill_worker_warmed_total", outcome="warmed") == 3
        assert rig.value("tagmill_worker_share_partitions") == 3
        # What was warmed is not fetched again, but for what has changed.
        rig.api.expressions = {7: "//a2"}
        rig.api.enqueue({2: {7: None}})
        await rig.results(1)
        assert len(rig.api.pages) == 3
        assert sorted(rig.api.asked[-1].holds) == [1, 2, 3] or rig.api.completions[-1].next
        await rig.stop()
        assert members(rig, 7, 2) == [0, 1, 2, 3][2:3]

    run(story())


def test_images_are_made_while_it_warms(evaluator: str) -> None:
    if evaluator != "kernel":
        return

    async def story() -> None:
        rig = rig_of()
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        assert rig.value("tagmill_worker_image_bytes") > 0
        await rig.stop()

    run(story())


def test_it_asks_again_when_an_answer_names_another_epoch() -> None:
    async def story() -> None:
        rig = rig_of(partitions=2)
        rig.api.share = (1, [1])
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        rig.api.share = (2, [1, 2])
        rig.api.expressions = {7: "//a2"}
        rig.api.enqueue({1: {7: None}})
        await polled(
            rig.reactor, lambda: rig.value("tagmill_worker_warmed_total", outcome="warmed") == 2
        )
        assert rig.api.shares[-1].ready
        rig.api.share = (3, [1])
        await rig.worker._session._beat()
        await rig.api.until(lambda: len(rig.api.shares) == 4)
        await rig.stop()

    run(story())


def test_it_leaves_when_it_is_stopped() -> None:
    async def story() -> None:
        rig = rig_of(partitions=1)
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        await rig.stop()
        assert rig.api.shares[-1].room == 0

    run(story())


def test_a_server_that_does_not_know_shares_is_not_asked() -> None:
    async def story() -> None:
        rig = rig_of()
        rig.api.registration["protocol"] = 3
        rig.api.expressions = {7: "//a2"}
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert rig.api.shares == []
        assert b"epoch" not in b"".join(body for _, body in rig.api.requests)

    run(story())


def test_a_worker_without_room_has_no_share() -> None:
    async def story() -> None:
        rig = rig_of("--store-bytes", "0")
        rig.api.expressions = {7: "//a2"}
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert rig.api.shares == []

    run(story())


def test_what_has_no_room_or_cannot_be_fetched_does_not_keep_it_from_being_ready() -> None:
    async def story() -> None:
        rig = rig_of("--store-bytes", "400")
        rig.api.share = (1, [9, 1, 2, 3])
        rig.api.faults["batch"].extend([None, problem(400, "invalid")])
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        for outcome in ("gone", "failed", "warmed", "full"):
            found = rig.value("tagmill_worker_warmed_total", outcome=outcome)
            assert found == 1, outcome
        await rig.stop()

    run(story())


def test_leases_come_first_and_warming_is_not_put_off_for_ever() -> None:
    """The partition that is leased is evaluated before a page of the share is asked for."""

    async def story() -> None:
        rig = rig_of()
        rig.partition(9, ["<node><a2/></node>"])
        rig.api.expressions = {7: "//a2"}
        held: list[Any] = []

        def hold(request: Any) -> Any:
            held.append(request)
            return rig.api.behave(request)

        rig.api.faults["complete"].append(hold)
        rig.api.work.append({9: {7: None}})
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        calls = [call for call, _ in rig.api.requests if call in ("batch", "complete")]
        assert calls.index("complete") <= 2
        await rig.stop()

    run(story())


def test_a_worker_that_starts_again_says_who_it_was(tmp_path: Path) -> None:
    options = ("--cache-dir", str(tmp_path), "--cache-bytes", "64MiB")

    async def story() -> None:
        rig = rig_of(*options)
        rig.api.registration["incarnation"] = incarnation = "0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11"
        was = "11111111-6a55-4a7c-8d62-5f3f0a3c9b11"
        (tmp_path / "worker").write_text(was)
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        assert [asked.former for asked in rig.api.shares] == [was, "worker-1"]
        assert rig.api.shares[0].room == 512 * 2**20
        await rig.stop()
        assert (tmp_path / "worker").read_text() == "worker-1"
        # Nothing is fetched again: it is on the disk.
        (tmp_path / "worker").write_text("not a worker")
        again = rig_of(*options)
        again.api.registration["incarnation"] = incarnation
        again.start()
        await again.api.until(lambda: is_ready(again))
        assert again.api.shares[0].former is None
        assert again.api.pages == []
        await again.stop()

    run(story())


def test_a_worker_that_the_server_forgot_asks_for_its_place_back() -> None:
    async def story() -> None:
        rig = rig_of(partitions=1)
        rig.start()
        await rig.api.until(lambda: is_ready(rig))
        rig.api.faults["heartbeat"].append(problem(410, "worker_gone"))
        await rig.worker._session._beat()
        await rig.api.until(lambda: len(rig.api.shares) == 4)
        assert [(asked.worker, asked.former, asked.ready) for asked in rig.api.shares[2:]] == [
            ("worker-2", "worker-1", False),
            ("worker-2", "worker-2", True),
        ]
        assert len(rig.api.pages) == 1
        await rig.stop()

    run(story())
