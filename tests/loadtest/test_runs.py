"""Small real runs: real server, real workers, real database."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
from pathlib import Path

import psutil
import psycopg
import pytest
from django.core.management import CommandError, call_command

from fixtures import loader
from loadtest.benches.change import ChangeBench
from loadtest.benches.check import compare
from loadtest.planner.costs import load
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.changes import MARKER_DEFINITION
from loadtest.rig.scratch import PREFIX, drop_leftovers
from tagmill import config
from tagmill.tags import tags
from tests.loadtest.conftest import SECONDS, Run, start
from tests.support.threads import until


def databases() -> list[str]:
    with psycopg.connect(config.load().database_url) as connection:
        rows = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", [f"{PREFIX}%"]
        )
        return [row[0] for row in rows]


@pytest.mark.proof
def test_a_fleet_of_simulated_workers_measures_the_server_and_loses_nothing(manage: Run) -> None:
    shares = ["--fail", "0.05", "--late", "0.1", "--duplicate", "0.1", "--fetch", "0.2"]
    found = manage(
        *("bench", "fleet", "--workers", "5", "--seconds", "0.6", "--processes", "2"),
        *("--evaluation", "0.01", "--tags", "3", *shares),
    )
    assert found["steps"][0]["workers"] == 1
    assert found["steps"][-1]["workers"] == 5
    assert found["workers_per_api_core"] > 0
    assert found["lease_p95_ms"] > 0
    assert found["bottleneck"]
    assert found["steps"][-1]["cores"]["server"] > 0
    assert found["crashes"] == []
    # Vanished workers, late and repeated results: every match is fresh all the same, and right.
    assert found["end"]["stale_matches"] == found["end"]["wrong_matches"] == 0
    assert f"{PREFIX}{found['pid']}" not in databases()


@pytest.mark.proof
def test_a_rebuild_is_compared_with_lxml_and_with_xpath_exists(manage: Run) -> None:
    found = manage("bench", "rebuild", "--nodes", "64", "--repetitions", "1")
    assert found["mismatches"] == 0
    assert (found["nodes"], found["document_bytes_mean"] > 10_000) == (64, True)
    arms = {arm["name"]: arm for arm in found["arms"]}
    # With eight tags `xpath_exists` counts every boolean as a match.
    assert arms["tagmill cold, 1 tag"]["matched"] == arms["tagmill warm, 1 tag"]["matched"] > 0
    assert all(arm["seconds"] > 0 and arm["nodes_per_second"] > 0 for arm in arms.values())
    if "xpath_exists serial, 1 tag" in arms:
        serial = arms["xpath_exists serial, 8 tags"]["seconds"]
        for state in ("cold", "warm"):
            ratio = arms[f"tagmill {state}, 8 tags"]["seconds"] / serial
            said = found["ratios"][f"{state}_vs_xpath_exists_serial"]
            assert said == pytest.approx(ratio, rel=0.02)
    else:
        assert "BENCH_DATABASE_URL" in found["printed"]


@pytest.mark.proof
def test_a_tier_that_is_too_small_hits_as_much_as_it_holds(manage: Run) -> None:
    """And a worker keeps and shares what it evaluated, from where it is opened again."""
    found = manage("bench", "tiers", "--nodes", "64", "--only", "budget", "local_first")
    for row in found["budget"]:
        assert row["hits"] == pytest.approx(row["budget"], abs=0.05)
        assert row["lru_hits"] == (1 if row["budget"] == 1 else 0)
    assert found["local_first"].keys() == {"local_ms", "shared_ms", "remote_ms", "ratio"}
    assert found["local_first"]["ratio"] > 1


@pytest.mark.proof
def test_a_sweep_agrees_with_lxml_and_is_compared_row_by_row(manage: Run) -> None:
    found = manage(
        *("bench", "sweep", "--nodes", "200", "--tags", "12", "--profile", "lean,varied"),
        *("--batch-nodes", "256", "--batch-bytes", "16777216", "--prefetch", "1048576"),
        *("--workers", "1", "--repetitions", "1", "--partition-slots", "128"),
    )
    assert found["mismatches"] == 0
    assert found["partitions"] == 2
    points = found["points"]
    fleets = [(row["profile"], row["tags"], row["state"]) for row in points]
    assert fleets == list(itertools.product(("lean", "varied"), (12,), ("cold", "warm")))
    for cold, warm in zip(points[::2], points[1::2], strict=True):
        assert cold["sent_bytes"] > 0 == warm["sent_bytes"]
        assert cold["round_trips"] > warm["round_trips"] > 0
        assert cold["cpu_seconds"]["server"] > 0
        assert cold["memory_bytes"]["worker"] > 1 << 20
    sizes = {row["profile"]: row["document_bytes_mean"] for row in points}
    assert sizes["varied"] > 2 * sizes["lean"]
    assert all(0 <= row["others"] <= 1 for row in points)
    # A sweet spot is named where there is one fleet alone.
    assert found["sweet_spot"] == {}
    compared = compare(load(), found)
    assert [row["tags"] for row in compared["rows"]] == [row["tags"] for row in points]
    assert len(compared["errors_by_fleet"]) == 4


@pytest.mark.proof
def test_a_calibration_can_be_planned_with(manage: Run, tmp_path: Path) -> None:
    # So few nodes use less CPU time than it is counted in: the fit may be as bad as it likes.
    found = manage(
        *("bench", "calibrate", "--nodes", "256", "--tags", "12", "--profile", "varied"),
        *("--repetitions", "1", "--most-error", "100"),
    )
    assert found["mismatches"] == 0
    assert found["seconds"]["api"] and found["seconds"]["worker"] and found["seconds"]["database"]
    varied = found["profiles"]["varied"]
    assert varied["variety"] > 0.02
    assert varied["image_bytes"] > 0
    assert found["how"]
    assert {row["profile"] for row in found["observations"]} == {"varied"}
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(found))
    # With costs as bad as that, the plan and its simulation may differ by more than they should.
    plan = ("--nodes", "10000", "--profile", "varied", "--calibrate", str(file))
    with contextlib.suppress(CommandError):
        call_command("capacity", *plan, "--json", str(tmp_path / "plan.json"))
    made = json.loads((tmp_path / "plan.json").read_text())
    assert made["workers"] >= 1
    assert made["demand"]["variety"] == varied["variety"]


@pytest.mark.proof
def test_growth_fits_exponents_and_takes_updates_under_load(manage: Run) -> None:
    found = manage(
        *("bench", "growth", "--nodes", "100,200", "--tags", "2", "--workers", "1"),
        *("--ingest-seconds", "1", "--uploaders", "2"),
    )
    assert found["mismatches"] == 0
    assert found["compared_evaluations"] > 0
    assert set(found["exponents"]) >= {"cold", "warm", "memory", "database"}
    assert 0 < found["exponents"]["database"] < 1.5
    assert [(row["nodes"], row["tags"]) for row in found["points"]] == [(100, 2), (200, 2)]
    assert found["updates"]["accepted"] > 0
    assert found["updates"]["delay_p50_ms"] > 0


@pytest.mark.proof
def test_changes_are_measured_and_every_verdict_is_compared_with_lxml(
    manage: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a server may leave what it has no time for to the workers.
    monkeypatch.setenv("TAGMILL_SETTLE_SECONDS", "5")
    found = manage(
        *("bench", "change", "--nodes", "50", "--tags", "3", "--clients", "1"),
        *("--workers", "1", "--seconds", "0.2"),
    )
    assert found["mismatches"] == 0
    assert (found["compared_evaluations"], found["compared_every"]) == (150, 1)
    assert found["puts_per_second"]["1"] > 0 < found["puts_per_second_without_tags"]["1"]
    # All were settled where they were stored, and flipped nothing.
    assert found["uploads"]["1"]["settled_share"] == 1
    assert found["match_rows_per_change"] == 0 < found["wal_bytes_per_change"]
    for state in ("idle", "rebuild"):
        assert 0 < found["visible_ms"][state]["p50"] <= found["visible_ms"][state]["p95"]
    assert found["visible_ms"]["rebuild"]["rebuilds"] > 0
    assert found["import"]["changed_per_second"] > 0 < found["import"]["unchanged_per_second"]
    assert set(found["cpu_ms_per_change"]) == {"api", "database", "worker"}


@pytest.mark.django_db(transaction=True)
def test_a_verdict_that_is_not_lxmls_fails_the_bench_of_changes() -> None:
    loader.load(5, seed=1)
    tags.create("marked", definition=MARKER_DEFINITION)
    assert ChangeBench().fault({"mismatches": wrong({"marked": MARKER_DEFINITION})}) is None
    # Nobody has evaluated it: not one node has the tag that all should have.
    tags.create("all", definition="//node")
    found = wrong({"marked": MARKER_DEFINITION, "all": "//node"})
    assert found == 5
    assert ChangeBench().fault({"mismatches": found}) == "5 answers differ from lxml's"


def wrong(definitions: dict[str, str]) -> int:
    return mismatches(ask_lxml(definitions))


def generates(child: psutil.Process) -> bool:
    try:
        return "loadtest.rig.simulated" in child.cmdline()
    except psutil.NoSuchProcess:
        return False


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_leaves_no_process_and_no_database(number: int) -> None:
    bench = start("bench", "fleet", "--workers", "4", "--seconds", "60", "--evaluation", "0.01")
    process = psutil.Process(bench.pid)

    def is_measuring() -> bool:
        assert bench.poll() is None, bench.communicate()[0]
        # The generator is the last to be started.
        return any(generates(child) for child in process.children())

    until(is_measuring, "measuring", SECONDS, every=0.05)
    children = process.children(recursive=True)
    os.kill(bench.pid, number)
    bench.communicate(timeout=SECONDS)
    assert bench.returncode == 130
    # An orphan is there until init has looked after it.
    assert not [child for child in children if lives(child)]
    assert f"{PREFIX}{bench.pid}" not in databases()


def test_a_database_that_a_killed_run_left_is_dropped_by_the_next_one(manage: Run) -> None:
    url = config.load().database_url
    # The largest process id of Linux is far below it.
    left = f"{PREFIX}999999999"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {left}")
    drop_leftovers(url)
    assert left not in databases()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fleet", "--workers", "0"], "must be positive"),
        (["sweep", "--nodes", "0"], "must be positive"),
        (["sweep", "--profile", "lean,wide"], "wide: not one of lean, server, varied"),
        (["sweep", "--repetitions", "100"], "choose fewer points"),
        (["sweep", "--nodes", "1000001"], "--nodes is at most 1,000,000"),
        (["growth", "--nodes", "100,2000000"], "--nodes is at most 1,000,000"),
        (["growth", "--tags", "1,1000000"], "--tags is at most 10,000"),
        (["growth", "--repetitions", "101"], "--repetitions is at most 100"),
        (["rebuild", "--nodes", "2000000"], "--nodes is at most 1,000,000"),
        (["rebuild", "--nodes", "0"], "--nodes must be positive"),
        (["rebuild", "--repetitions", "101"], "--repetitions is at most 100"),
        (["evaluate", "--nodes", "2000000"], "--nodes is at most 1,000,000"),
        (["change", "--nodes", "32"], "must be more than --clients"),
        (["change", "--seconds", "601"], "--seconds is 0.1 to 600"),
        (["change", "--tags", "0"], "--tags must be positive"),
        (["change", "--processes", "0"], "--processes must be positive"),
        (["preview", "--tags", "1000000"], "--tags is at most 10,000"),
        (["preview", "--previews", "0"], "--previews must be positive"),
        (["capacity", "--sweep", "/nonexistent.json"], "nonexistent"),
        (["report", "/nonexistent"], "no JSON file"),
    ],
)
def test_a_bench_that_cannot_run_says_why(arguments: list[str], message: str, manage: Run) -> None:
    from loadtest.management.commands import bench

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CommandError, match=message):
        patch.setattr(signal, "signal", lambda *_: None)
        for item in bench.BENCHES:
            patch.setattr(item, "needs_database", False)
        call_command("bench", *arguments)
