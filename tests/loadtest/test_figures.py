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
from loadtest.planner.costs import ORIGIN, load
from loadtest.rig.definitions import definitions
from loadtest.rig.rig import Usage
from loadtest.rig.simulated import base_rev, plausible


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


@pytest.mark.parametrize(
    ("bases", "expected"), [([], None), ([None, 3], None), ([5, 3], 3), ([0], 0)]
)
def test_a_simulated_worker_needs_every_node_unless_each_expression_has_a_base(
    bases: list[int | None], expected: int | None
) -> None:
    lease = {"expressions": [{"expression": 1, "base_rev": base} for base in bases]}
    assert base_rev(lease) == expected


def test_five_hundred_definitions_are_different_and_compile() -> None:
    from tagmill_expressions import evaluation

    made = definitions(500)
    assert len(set(made.values())) == 500
    assert list(made)[:10] == list(definitions(10))
    for text in made.values():
        evaluation.compile(text, {})


# By hand, from the origin's costs: 0.85 ms of a node in the worker, and cold 0.15 ms in the API
# server and 0.2 ms in the database besides.
BY_HAND = {"cold": 10_000 * 0.0012, "warm": 10_000 * 0.00085}


def sweep_of(factor: float = 1.0) -> dict[str, Any]:
    """A sweep of one worker on the origin's machine, `factor` times slower than by hand."""
    return {
        "machine": {"cores": 4},
        "partition_slots": 10_000,
        "nodes": 10_000,
        "tags": 1,
        "document_bytes_mean": 20_000,
        "points": [
            {
                "state": state,
                "workers": 1,
                "batch_nodes": 1024,
                "batch_bytes": 1 << 25,
                "seconds": seconds * factor,
                "cpu_seconds_total": seconds * factor,
            }
            for state, seconds in BY_HAND.items()
        ],
    }


def test_predictions_are_compared_with_a_sweep() -> None:
    unit = load(ORIGIN)
    found = compare(unit, sweep_of())
    predicted = {row["state"]: row["formula_seconds"] for row in found["rows"]}
    assert predicted == pytest.approx(BY_HAND)
    assert found["errors"] == pytest.approx({"formula": 0, "simulation": 0, "cpu": 0}, abs=0.01)
    slower = compare(unit, sweep_of(3.0))["errors"]
    assert slower == pytest.approx({"formula": 2 / 3, "simulation": 2 / 3, "cpu": 2 / 3}, abs=0.01)
    with pytest.raises(BenchError, match="not a sweep"):
        compare(unit, {"points": []})
    small = sweep_of()
    small["points"][0]["batch_bytes"] = 1 << 20
    assert len(compare(unit, small)["rows"]) == 1
    small["points"][1]["batch_nodes"] = 1
    with pytest.raises(BenchError, match="no point with batches"):
        compare(unit, small)


def test_a_state_that_is_predicted_well_does_not_hide_one_that_is_not() -> None:
    unit = load(ORIGIN)
    sweep = sweep_of()
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
