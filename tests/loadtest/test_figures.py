"""What the benches make of their measurements, without measuring."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from loadtest.bench import BenchError, numbers, percentile
from loadtest.benches.calibrate import (
    MAX_PARTITIONS,
    SMALL_SLOTS,
    SOME,
    Observation,
    least_squares,
    ordinary,
)
from loadtest.benches.check import CheckBench, compare
from loadtest.benches.growth import exponent
from loadtest.benches.saturation import bottleneck, conclusion
from loadtest.benches.sweep import sweet_spot
from loadtest.planner.costs import Costs, load
from loadtest.rig.definitions import definitions
from loadtest.rig.rig import Usage
from loadtest.rig.simulated import plausible


def test_the_exponent_of_a_power_law_is_found_whatever_its_height() -> None:
    points = [(group, x, group * x**1.5) for group in (1.0, 50.0) for x in (10.0, 100.0, 1000.0)]
    assert exponent(points) == 1.5
    assert exponent([(1, 10, 5), (2, 10, 7)]) is None


def test_costs_are_fitted_and_never_negative() -> None:
    rows = [[1.0, 10.0, 3.0], [1.0, 100.0, 1.0], [1.0, 1000.0, 2.0], [1.0, 20.0, 9.0]]
    values = [0.5 + 0.01 * row[1] for row in rows]
    assert least_squares(rows, values) == pytest.approx([0.5, 0.01, 0.0], abs=1e-6)
    assert least_squares([[1.0], [2.0]], [0.0, 0.0]) == [0.0]


def test_a_node_s_memory_is_of_some_tags_full_leases_and_the_first_fleet() -> None:
    used = Usage(1.0, {}, {}, 0)
    seen = [
        Observation({}, used, state, tags, 1, 1, most, slots)
        for slots, tags, most, state in itertools.product(
            (1024, SMALL_SLOTS), (1, SOME, 64), (MAX_PARTITIONS, 1), ("cold", "warm")
        )
    ]
    found = ordinary(seen, 1024)
    assert (found.state, found.tags, found.most, found.slots) == (
        "cold",
        SOME,
        MAX_PARTITIONS,
        1024,
    )


def test_the_sweet_spot_has_the_least_cpu_then_the_fewest_trips() -> None:
    def row(cpu: float, trips: int, memory: int) -> dict[str, Any]:
        return {
            "cpu_seconds_total": cpu,
            "round_trips": trips,
            "memory_bytes": {"worker": memory},
        }

    rows = [row(1.5, 1, 1), row(1.0, 50, 10), row(1.01, 10, 20), row(1.01, 10, 30)]
    assert sweet_spot(rows) is rows[2]


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


def test_plausible_bitmaps_are_the_same_for_everybody_and_change_with_the_rev() -> None:
    first = plausible(1, 2, 3, 4, 1024)
    assert first == plausible(1, 2, 3, 4, 1024)
    assert first != plausible(1, 2, 3, 5, 1024)
    assert 0 < first.bit_count() < 1024 // 4


def test_five_hundred_definitions_are_different_and_compile() -> None:
    from tagmill_expressions import evaluation

    made = definitions(500)
    assert len(set(made.values())) == 500
    assert list(made)[:10] == list(definitions(10))
    for text in made.values():
        evaluation.compile(text, {})


def sweep_of(unit: Costs, factor: float) -> dict[str, Any]:
    """A sweep whose measurements are what the formula says, times `factor`."""
    base: dict[str, Any] = {
        "machine": {"cores": 2},
        "partition_slots": unit.partition_slots,
        "nodes": 50_000,
        "tags": 8,
        "document_bytes_mean": 20_000,
        "points": [
            {
                "state": state,
                "workers": 2,
                "batch_nodes": 1024,
                "batch_bytes": 1 << 24,
                "seconds": 1.0,
                "cpu_seconds_total": 1.0,
            }
            for state in ("cold", "warm")
        ],
    }
    for row, found in zip(base["points"], compare(unit, base)["rows"], strict=True):
        row["seconds"] = found["formula_seconds"] * factor
        row["cpu_seconds_total"] = found["formula_cpu_seconds"] * factor
    return base


def test_predictions_are_compared_with_a_sweep() -> None:
    unit = load()
    good = compare(unit, sweep_of(unit, 1.0))["errors"]
    assert good["formula"] == pytest.approx(0, abs=0.01)
    assert good["simulation"] < 0.25
    bad = compare(unit, sweep_of(unit, 3.0))["errors"]
    assert bad["formula"] > 0.25
    with pytest.raises(BenchError, match="not a sweep"):
        compare(unit, {"points": []})
    small = sweep_of(unit, 1.0)
    small["points"][0]["batch_bytes"] = 1 << 20
    assert len(compare(unit, small)["rows"]) == 1
    small["points"][1]["batch_nodes"] = 1
    with pytest.raises(BenchError, match="no point with batches"):
        compare(unit, small)


def test_a_state_that_is_predicted_well_does_not_hide_one_that_is_not() -> None:
    unit = load()
    sweep = sweep_of(unit, 1.0)
    cold, warm = sweep["points"]
    warm["seconds"] *= 3
    # Three good rows for each bad one: a median over all would be good.
    sweep["points"] = [cold, dict(cold), dict(cold), warm]
    found = compare(unit, sweep)
    assert found["errors_by_state"]["cold"]["formula"] == pytest.approx(0, abs=0.01)
    assert found["errors_by_state"]["warm"]["formula"] > 0.25
    assert found["errors"]["formula"] == found["errors_by_state"]["warm"]["formula"]
    fault = CheckBench().fault(found)
    assert fault is not None and "(warm)" in fault


def test_lists_and_percentiles() -> None:
    assert numbers("1,10,100") == [1, 10, 100]
    for text in ("", "0", "1,,2", "x"):
        with pytest.raises(ValueError):
            numbers(text)
    assert percentile([], 0.5) == 0
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1, 2, 3, 4], 1.0) == 4
