"""Benches of what a server bears, and of what a fleet leaves behind, refuse what they cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from loadtest.bench import BenchError, Session
from loadtest.benches.attack import AttackBench
from loadtest.benches.turnover import TurnoverBench

NOBODY = Session(Console(), "", Path())


@pytest.mark.parametrize(("name", "value"), [("idle", 0), ("idle", 20_000), ("slow", -1)])
def test_no_more_connections_are_opened_than_a_process_may_have(name: str, value: int) -> None:
    with pytest.raises(BenchError, match=f"--{name} is"):
        AttackBench().run({"idle": 1, "slow": 1, name: value}, NOBODY)


@pytest.mark.parametrize(("name", "value"), [("times", 0), ("slots", 12), ("slots", 2048)])
def test_a_fleet_turns_over_a_bounded_number_of_times(name: str, value: int) -> None:
    with pytest.raises(BenchError, match=f"--{name} is"):
        TurnoverBench().run({"nodes": 1, "times": 1, "slots": 8, name: value}, NOBODY)


def test_growth_and_memory_beyond_a_bound_fail_the_run() -> None:
    assert TurnoverBench().fault({"growth": 2.1}) == "it has grown to 2.10 times its size"
    assert TurnoverBench().fault({"growth": 1.3, "mismatches": 0}) is None
    row = {"memory_bytes": 1 << 30}
    assert AttackBench().fault({"attacks": {"idle": row}}) == "idle took 1074 MB"
