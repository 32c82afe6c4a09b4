"""What the benches make of their measurements, without measuring."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.bench import BenchError, numbers, percentile
from loadtest.benches.cache import ratios
from loadtest.benches.calibrate import CalibrateBench
from loadtest.benches.check import CheckBench, compare
from loadtest.benches.growth import exponent
from loadtest.benches.lists import LISTS, SHOWN, TURNS
from loadtest.benches.saturation import bottleneck, conclusion
from loadtest.benches.sweep import sweet_spot, sweet_spots
from loadtest.planner.costs import ORIGIN, Costs, load
from loadtest.planner.fitting import least_squares, relative
from loadtest.rig.behaviour import holds
from loadtest.rig.definitions import definitions

ROOT = Path(__file__).resolve().parents[2]


def test_the_exponent_of_a_power_law_is_found_whatever_its_height() -> None:
    points = [(group, x, group * x**1.5) for group in (1.0, 50.0) for x in (10.0, 100.0, 1000.0)]
    assert exponent(points) == 1.5
    assert exponent([(1, 10, 5), (2, 10, 7)]) is None


def test_costs_are_fitted_and_never_negative() -> None:
    rows = [[1.0, 10.0, 3.0], [1.0, 100.0, 1.0], [1.0, 1000.0, 2.0], [1.0, 20.0, 9.0]]
    values = [0.5 + 0.01 * row[1] for row in rows]
    assert least_squares(rows, values) == pytest.approx([0.5, 0.01, 0.0], abs=1e-6)
    assert least_squares([[1.0], [2.0]], [0.0, 0.0]) == [0.0]


def test_the_sweet_spot_has_the_least_cpu_then_the_fewest_trips() -> None:
    def row(cpu: float, trips: int, memory: int) -> dict[str, Any]:
        return {
            "cpu_seconds_total": cpu,
            "round_trips": trips,
            "memory_bytes": {"worker": memory},
        }

    rows = [row(1.5, 1, 1), row(1.0, 50, 10), row(1.01, 10, 20), row(1.01, 10, 30)]
    assert sweet_spot(rows) is rows[2]
    fleet = [
        row | {"profile": "lean", "tags": 8, "state": state}
        for row in rows
        for state in ("cold", "warm")
    ]
    assert sweet_spots(fleet) == {"cold": fleet[4], "warm": fleet[5]}
    assert sweet_spots([*fleet, fleet[0] | {"tags": 9}]) == {}


def step(workers: int, rate: float, **cores: float) -> dict[str, Any]:
    return {
        "workers": workers,
        "generators": 1,
        "completions_per_second": rate,
        "lease_p50_ms": 1.0,
        "lease_p95_ms": 2.0,
        "cores": cores,
        "machine_busy": cores.pop("busy", 0.5),
    }


def test_a_core_feeds_what_its_best_step_completes() -> None:
    steps = [step(1, 10, server=0.1), step(8, 70, server=0.7), step(16, 72, server=0.9)]
    found = conclusion(steps, cores=4)
    assert found["workers_per_api_core"] == pytest.approx(7.2 / 0.9)
    assert found["bottleneck"] == "api_cpu"
    assert found["saturated"]


def test_a_ramp_that_ends_before_saturation_says_so() -> None:
    steps = [step(1, 10, server=0.1), step(4, 40, server=0.3)]
    found = conclusion(steps, cores=4)
    assert (found["bottleneck"], found["saturated"]) == ("workers", False)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({"server": 0.5, "generator": 0.95}, "load_generator"),
        ({"server": 0.95, "generator": 0.2}, "api_cpu"),
        ({"server": 0.5, "database": 3.0}, "database_cpu"),
        ({"server": 0.6, "database": 0.8, "busy": 1.0}, "database_cpu"),
        ({"server": 0.5, "database": 0.5}, "waiting"),
    ],
)
def test_the_bottleneck_is_what_is_full(used: dict[str, float], expected: str) -> None:
    assert bottleneck(step(8, 10, **used), 4, is_saturated=True) == expected


def test_simulated_verdicts_are_the_same_for_everybody_and_change_with_the_node() -> None:
    def found(rev: int) -> list[bool]:
        return [holds(1, 2, 3, slot, rev) for slot in range(1024)]

    assert found(4) == found(4) != found(5)
    assert 0 < sum(found(4)) < 1024 // 4


def test_five_hundred_definitions_are_different_and_compile() -> None:
    from tagmill_expressions import evaluation

    made = definitions(500)
    assert len(set(made.values())) == 500
    assert list(made)[:10] == list(definitions(10))
    for text in made.values():
        evaluation.compile(text, {})


# A node of each profile: the bytes of its documents, and those that are sent of them.
PROFILES = {"lean": (19_000, 400), "server": (61_000, 1_200)}


def unit_costs() -> Costs:
    """The origin's, in one partition, on a machine that is 100 times as fast: 85 ms of evaluations
    for 10,000 nodes and a tag, and 35 ms for sending the nodes. Besides, each byte that is sent
    costs a nanosecond."""
    origin = load(ORIGIN)
    seconds = {
        name: {unit: cost / 100 for unit, cost in units.items()}
        for name, units in origin.seconds.items()
    }
    seconds["api"]["cold_own_byte"] = 1e-9
    return replace(origin, partition_slots=10_000, seconds=seconds)


def sweep(factor: float = 1.0) -> dict[str, Any]:
    """A sweep with these costs, worked out by hand, times `factor`."""
    return {
        "machine": {"cores": 2},
        "partition_slots": 10_000,
        "nodes": 10_000,
        "points": [
            {
                "profile": profile,
                "tags": tags,
                "document_bytes_mean": size,
                "state": state,
                "workers": 1,
                "batch_nodes": 1024,
                "batch_bytes": 1 << 26,
                "sent_bytes": sent,
                "seconds": seconds * factor,
                "cpu_seconds_total": seconds * factor,
                "others": 0.0,
            }
            for profile, (size, own) in PROFILES.items()
            for tags in (1, 8, 64, 256, 500)
            for state, sent in (("cold", 10_000 * own), ("warm", 0))
            for seconds in [0.085 * tags + (0.035 + sent * 1e-9 if state == "cold" else 0)]
        ],
    }


def test_predictions_are_compared_with_a_sweep() -> None:
    unit = unit_costs()
    good = compare(unit, sweep())
    for name in ("formula", "cpu"):
        assert [row[f"{name}_error"] for row in good["rows"]] == pytest.approx([0] * 20, abs=0.002)
    assert good["worst"]["measure"] == "simulation"
    assert good["worst"]["error"] < 0.05
    bad = compare(unit, sweep(3.0))
    assert bad["worst"]["error"] > 0.25
    with pytest.raises(BenchError, match="not a sweep"):
        compare(unit, {"points": []})
    small = sweep()
    small["points"][0]["batch_bytes"] = 1 << 20
    assert len(compare(unit, small)["rows"]) == 19
    for row in small["points"]:
        row["batch_nodes"] = 1
    with pytest.raises(BenchError, match="no point with batches"):
        compare(unit, small)


def test_a_sweep_of_one_fleet_says_so_at_its_top() -> None:
    one = sweep()
    one["points"] = [row for row in one["points"] if row["tags"] == 8][:2]
    for row in one["points"]:
        one |= {name: row.pop(name) for name in ("profile", "tags", "document_bytes_mean")}
    found = compare(unit_costs(), one)
    assert [row["cpu_error"] for row in found["rows"]] == pytest.approx([0, 0], abs=0.001)


@pytest.mark.parametrize("number", range(20))
def test_the_one_fleet_that_is_predicted_badly_fails_the_comparison(number: int) -> None:
    one = sweep()
    one["points"][number]["cpu_seconds_total"] *= 2
    found = compare(unit_costs(), one)
    # Any median hides one of twenty.
    assert found["errors"]["cpu"] == pytest.approx(0, abs=0.01)
    row = found["rows"][number]
    assert found["worst"] == {"measure": "cpu", "error": row["cpu_error"], "at": row["name"]}
    fault = CheckBench().fault(found)
    assert fault is not None
    assert row["name"] in fault


def test_time_is_not_judged_where_others_had_a_part_of_the_machine() -> None:
    one = sweep()
    one["points"][3] |= {"seconds": 1000.0, "others": 0.5}
    found = compare(unit_costs(), one)
    assert found["judged_by_time"] == 19
    assert found["worst"]["at"] != found["rows"][3]["name"]
    one["points"][3]["others"] = 0.0
    assert compare(unit_costs(), one)["worst"]["at"] == found["rows"][3]["name"]


def test_a_fit_that_misses_one_observation_fails_the_calibration() -> None:
    result = {"fit_worst": {"total": {"error": 0.3, "at": "64 tags"}}, "most_error": 0.25}
    fault = CalibrateBench().fault(result)
    assert fault is not None
    assert "64 tags" in fault
    result["fit_worst"]["total"]["error"] = 0.2
    assert CalibrateBench().fault(result) is None


def test_an_error_of_a_process_is_measured_by_what_a_plan_would_notice() -> None:
    assert relative(1.5, 1.0, 2.0) == pytest.approx(0.5)
    # Two hundredths of a second, of a rebuild of ten.
    assert relative(0.03, 0.01, 10.0) == pytest.approx(0.02)


def test_lists_and_percentiles() -> None:
    assert numbers("1,10,100") == [1, 10, 100]
    for text in ("", "0", "1,,2", "x"):
        with pytest.raises(ValueError):
            numbers(text)
    assert percentile([], 0.5) == 0
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1, 2, 3, 4], 1.0) == 4


def test_the_caches_ratios_are_of_the_shortest_and_the_longest_list() -> None:
    def row(nodes: int, uncached: float, cached: float) -> dict[str, Any]:
        arms = {
            name: {"avg_ms": seconds, "cpu_ms": seconds / 2}
            for name, seconds in (("uncached", uncached), ("cached", cached))
        }
        return {"nodes": nodes, "arms": arms}

    found = ratios([row(10, 4.0, 2.0), row(100, 5.0, 1.0), row(3000, 50.0, 2.0)])
    assert found == {"at_10": 2.0, "at_3000": 25.0, "cpu_at_3000": 25.0}


def test_the_figures_of_lists_are_of_all_lists_at_the_size_that_is_meant() -> None:
    found = json.loads((ROOT / "docs/performance/lists.json").read_text())
    assert (found["bench"], found["nodes"], found["tags"]) == ("lists", 10_000, 1000)
    assert found["machine"]["cores"] and found["calls"] >= TURNS
    assert found["lists"].keys() == LISTS.keys()
    for figures in found["lists"].values():
        assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["max_ms"]
        assert figures.keys() == set(SHOWN)
