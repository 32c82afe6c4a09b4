"""A worker that is leased expression sets: fetched once a version, and never believed blindly."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec import UNSET

from tagmill_wire.messages import OfSet, SlotVerdicts
from tagmill_worker import sets
from tests.workers import mockapi
from tests.workers.running import run
from tests.workers.test_worker import Rig, members

FIRST, SECOND = "1" * 32, "2" * 32


def speaking() -> Rig:
    rig = Rig()
    rig.api.registration["protocol"] = 3
    rig.partition(1, ["<list><node/></list>", "<list/>"])
    rig.api.expressions = {7: "//node", 8: "true()", 9: "1 = 2"}
    rig.api.live = FIRST, [7, 8, 9]
    return rig


def packed(bits: int) -> str:
    return base64.b64encode(bytes([bits])).decode()


def test_definitions_are_fetched_once_and_verdicts_are_one_bitmap_a_slot() -> None:
    async def story() -> None:
        rig = speaking()
        rig.api.work.append({1: {7: None, 8: None, 9: None}})
        rig.start()
        await rig.results(1)
        partition = rig.api.partitions[1]
        base = partition.rev
        partition.put(1, "<node/>")
        rig.api.enqueue({1: {7: base, 8: base, 9: base}})
        await rig.results(2)
        await rig.stop()
        whole, delta = rig.api.results
        assert rig.api.asked[0].sets is True
        assert rig.api.fetched == [FIRST]
        assert (whole.set, whole.empty, whole.changed) == (FIRST, packed(0b100), UNSET)
        assert (members(rig, 7, 1), members(rig, 8, 1)) == ([0], [0, 1])
        assert (delta.matches, delta.empty) == ([], UNSET)
        assert delta.deltas == [OfSet(base)]
        assert delta.changed == [SlotVerdicts(1, packed(0b011))]

    run(story())


def test_a_failure_is_left_out_of_the_bitmaps() -> None:
    async def story() -> None:
        rig = speaking()
        rig.api.expressions[9] = "//node["
        rig.api.work.append({1: {7: None, 8: None, 9: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        (result,) = rig.api.results
        assert [item.expression for item in result.failures] == [9]
        assert (result.set, result.empty) == (UNSET, UNSET)
        assert [item.expression for item in result.matches] == [7, 8]

    run(story())


@pytest.mark.parametrize(
    "fault",
    [mockapi.problem(404, "unknown_expression_set"), mockapi.problem(400, "invalid")],
    ids=["404", "400"],
)
def test_leases_of_a_set_that_is_not_to_be_had_are_given_back(fault: Any) -> None:
    async def story() -> None:
        rig = speaking()
        rig.api.faults["set"].append(fault)
        rig.api.work.extend([{1: {7: None}}, {1: {7: None}}])
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert [item.leases for item in rig.api.given_up] == [["lease-1"]]
        assert rig.api.results[0].lease == "lease-2"
        assert rig.api.fetched == [FIRST]

    run(story())


def test_a_set_is_asked_for_again_where_no_answer_comes() -> None:
    async def story() -> None:
        rig = speaking()
        rig.api.faults["set"].extend([mockapi.problem(503, "database_busy"), mockapi.garbage])
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert rig.api.given_up == []
        assert rig.value("tagmill_worker_retries_total", call="expression_set") == 2

    run(story())


def test_a_set_that_the_server_forgot_is_spelt_out() -> None:
    async def story() -> None:
        rig = speaking()
        rig.api.faults["complete"].append(mockapi.problem(404, "unknown_expression_set"))
        rig.api.work.append({1: {7: None, 9: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        (result,) = rig.api.results
        assert (result.set, result.deltas, result.empty) == (UNSET, UNSET, UNSET)
        assert [item.expression for item in result.matches] == [7, 9]
        assert (members(rig, 7, 1), rig.api.given_up) == ([0], [])

    run(story())


def test_an_older_server_is_asked_for_nothing_that_it_does_not_know() -> None:
    async def story() -> None:
        rig = speaking()
        rig.api.registration["protocol"] = 2
        rig.api.live = None
        rig.api.work.append({1: {7: None, 9: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        for call, body in rig.api.requests:
            if call in {"lease", "complete"}:
                assert not any(name in body for name in (b'set":', b'sets":', b'empty":'))

    run(story())


def test_few_sets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "MAX_KEPT", 1)

    async def story() -> None:
        rig = speaking()
        for number, version in enumerate([FIRST, FIRST, SECOND, FIRST], 1):
            rig.api.live = version, [7, 8, 9]
            rig.partition(number, ["<node/>"])
            rig.api.enqueue({number: {7: None}})
            if number == 1:
                rig.start()
            await rig.results(number)
        await rig.stop()
        assert rig.api.fetched == [FIRST, SECOND, FIRST]

    run(story())
