"""Documents read by groups and one by one, out of a database that is cold."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.bench import BenchError, Session
from loadtest.benches.batch import ARMS, TABLES, BatchBench, ratios
from loadtest.benches.batch_fleet import slots_of
from loadtest.rig.cold import ColdPostgres, file_system

OPTIONS = {"nodes": 64, "groups": 2, "profile": "lean", "repetitions": 1, "tables": ["fresh"]}


@pytest.mark.proof
def test_what_was_dropped_is_read_of_the_disk_and_what_is_hot_is_not(
    django_db_blocker: Any,
) -> None:
    # Not pytest's: sockets have short paths.
    with tempfile.TemporaryDirectory() as folder, django_db_blocker.unblock():
        session = Session(Console(quiet=True), "", Path(folder))
        found = BatchBench().run({**OPTIONS, "arms": ["at_rest"]}, session)
    assert (found["bench"], found["mismatches"], found["ratios"]) == ("batch", 0, {})
    cold, hot = found["arms"]
    assert [(arm["name"], arm["state"], arm["table"]) for arm in (cold, hot)] == [
        ("at_rest", "cold", "fresh"),
        ("at_rest", "hot", "fresh"),
    ]
    # The dictionary is fetched once.
    assert (cold["round_trips"], hot["round_trips"]) == (3, 2)
    assert cold["blocks_read"] > 0 == hot["blocks_read"]
    assert cold["disk_bytes"] > 0 == hot["disk_bytes"]
    assert cold["seconds"] > 0 and cold["read_ms"] > 0


def test_a_ratio_is_that_of_the_worst_case() -> None:
    seconds = {"single": 6.0, "pipelined": 2.0, "read_ahead": 0.5, "at_rest": 0.25}
    arms = [
        {"name": name, "state": state, "table": table, "seconds": seconds.get(name, 1.0)}
        for name in ARMS
        for state in ("cold", "hot")
        for table in TABLES
    ]
    # The slowest of the batches that count, on the worse table.
    arms[-1]["seconds"] = 1.0
    assert ratios(arms) == {
        "hot_vs_single": 6.0,
        "cold_vs_pipelined": 0.25,
        "cold_vs_single": round(0.5 / 6, 4),
    }
    assert ratios(arms[:2]) == {}


def test_groups_are_partitions_of_whole_bytes() -> None:
    assert (slots_of(1000, 8), slots_of(64, 2), slots_of(65, 2)) == (128, 32, 40)


def test_nothing_is_cold_in_memory() -> None:
    memory = Path("/dev/shm")
    assert file_system(memory) == "tmpfs"
    with pytest.raises(BenchError, match="TMPDIR"):
        ColdPostgres(memory / "p")
