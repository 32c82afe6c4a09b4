"""`bench capacity`: the plan's formula and the simulation against what `bench sweep` measured.

Both predict each of the sweep's rows: one API server, the row's workers, and the database, all on
one machine's cores. Rows whose batches are smaller than those of the calibration are left out,
since unit costs are of one batch size.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.bench import Bench, BenchError, Session, read_json
from loadtest.planner import costs
from loadtest.planner.capacity import Demand, Deployment, cpu_seconds, predict
from loadtest.planner.simulation import simulate

# Machines are noisy, and a plan has its reserve: what is worse than this says nothing.
MAX_ERROR = 0.25
PREDICTED = ("formula", "simulation", "cpu")
NEEDED = ("state", "workers", "seconds", "cpu_seconds_total", "batch_nodes", "batch_bytes")


def compare(unit: costs.Costs, sweep: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    """Each row's measured and predicted figures. Raises BenchError for what is no sweep's JSON."""
    try:
        cores = int(sweep["machine"]["cores"])
        unit = replace(unit, partition_slots=int(sweep["partition_slots"]))
        rows = [{name: row[name] for name in NEEDED} for row in sweep["points"]]
        nodes, tags = int(sweep["nodes"]), int(sweep["tags"])
        least_bytes = unit.batch_nodes * float(sweep["document_bytes_mean"])
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"not a sweep's JSON: {error!r}") from None
    alike = [
        row
        for row in rows
        if row["batch_nodes"] >= unit.batch_nodes and row["batch_bytes"] >= least_bytes
    ]
    if not alike:
        raise BenchError(f"the sweep has no point with batches of {unit.batch_nodes} nodes")
    for row in alike:
        demand = Demand(nodes, tags, target=1.0, is_cold=row["state"] == "cold")
        deployment = Deployment(row["workers"], 1, cores, machine_cores=cores)
        predicted = predict(unit, demand, deployment)
        simulated = simulate(unit, demand, deployment, seed)
        cpu = sum(cpu_seconds(unit, demand, row["workers"]).values())
        row |= {
            "formula_seconds": round(predicted.seconds, 4),
            "simulated_seconds": round(simulated.seconds, 4),
            "formula_cpu_seconds": round(cpu, 4),
            "bottleneck": predicted.bottleneck,
            "formula_error": _error(predicted.seconds, row["seconds"]),
            "simulation_error": _error(simulated.seconds, row["seconds"]),
            "cpu_error": _error(cpu, row["cpu_seconds_total"]),
        }
    by_state = {
        state: _medians([row for row in alike if row["state"] == state])
        for state in dict.fromkeys(row["state"] for row in alike)
    }
    # A good state must not make up for a bad one.
    errors = {name: max(found[name] for found in by_state.values()) for name in PREDICTED}
    return {
        "rows": alike,
        "errors": errors,
        "errors_by_state": by_state,
        "most_error": MAX_ERROR,
    }


def _medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {
        name: round(statistics.median(row[f"{name}_error"] for row in rows), 4)
        for name in PREDICTED
    }


def _error(predicted: float, measured: float) -> float:
    return round(abs(predicted - measured) / max(measured, 1e-9), 4)


class CheckBench(Bench):
    name = "capacity"
    help = "the capacity plan's formula and simulation against a sweep of this machine"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--sweep", type=Path, required=True, metavar="FILE", help="of `bench sweep --json`"
        )
        parser.add_argument(
            "--calibrate", type=Path, metavar="FILE", help="of `bench calibrate --json`"
        )
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        unit = costs.load(options["calibrate"] or costs.DEFAULT)
        found = compare(unit, read_json(options["sweep"]), options["seed"])
        return {"bench": "check", "costs": unit.name, **found}

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title="measured, and predicted from unit costs")
        for column in (
            "state",
            "workers",
            "measured s",
            "formula",
            "simulation",
            "CPU s",
            "formula's",
            "bottleneck",
        ):
            table.add_column(column, justify="right")
        for row in result["rows"]:
            table.add_row(
                row["state"],
                str(row["workers"]),
                f"{row['seconds']:.3f}",
                f"{row['formula_seconds']:.3f} ({row['formula_error']:.0%})",
                f"{row['simulated_seconds']:.3f} ({row['simulation_error']:.0%})",
                f"{row['cpu_seconds_total']:.3f}",
                f"{row['formula_cpu_seconds']:.3f} ({row['cpu_error']:.0%})",
                row["bottleneck"],
            )
        console.print(table)
        for state, found in result["errors_by_state"].items():
            errors = ", ".join(f"{name} {error:.1%}" for name, error in found.items())
            console.print(f"median errors, {state}: {errors}")
        console.print(f"Costs: {result['costs']}")

    def fault(self, result: dict[str, Any]) -> str | None:
        state, worst = max(
            ((state, max(found.values())) for state, found in result["errors_by_state"].items()),
            key=lambda item: item[1],
        )
        if worst <= result["most_error"]:
            return None
        return (
            f"a median error of {worst:.0%} ({state}): calibrate again (bench calibrate), "
            "on an idle machine"
        )
