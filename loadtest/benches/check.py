"""`bench capacity`: the plan's formula and the simulation against what `bench sweep` measured.

Both predict each of the sweep's rows: one API server, the row's workers, and the database, all on
one machine's cores. The worst row decides, since a plan is made for one fleet, not for a mean of
fleets. Rows whose batches are smaller than those of the calibration are left out: unit costs are
of one batch size. Where other processes had a part of the machine, time says nothing: there CPU
seconds alone are judged.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.bench import Bench, BenchError, Session, read_json
from loadtest.planner import costs
from loadtest.planner.capacity import Deployment, cpu_seconds, predict
from loadtest.planner.demand import Demand, State
from loadtest.planner.simulation import simulate

# Machines are noisy, and a plan has its reserve: what is worse than this says nothing.
MAX_ERROR = 0.25
# The share of the machine that others may have had where time is judged.
MAX_OTHERS = 0.05
PREDICTED = ("formula", "simulation", "cpu")
NEEDED = ("state", "workers", "seconds", "cpu_seconds_total", "batch_nodes", "batch_bytes")
# By row; of a file with one of each, at its top.
OF_A_FLEET = ("tags", "profile", "document_bytes_mean")

Row = dict[str, Any]


def compare(unit: costs.Costs, sweep: Mapping[str, Any], seed: int = 1) -> dict[str, Any]:
    """Each row's measured and predicted figures. Raises BenchError for what is no sweep's JSON."""
    try:
        cores = int(sweep["machine"]["cores"])
        unit = replace(unit, partition_slots=int(sweep["partition_slots"]))
        nodes = int(sweep["nodes"])
        rows = [_row(row, sweep) for row in sweep["points"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"not a sweep's JSON: {error!r}") from None
    alike = [row for row in rows if _is_alike(unit, row)]
    if not alike:
        raise BenchError(f"the sweep has no point with batches of {unit.batch_nodes} nodes")
    varieties = _varieties(alike, nodes)
    for row in alike:
        state: State = "cold" if row["state"] == "cold" else "hot"
        size = row["document_bytes_mean"]
        demand = Demand(nodes, row["tags"], 1.0, state, size, varieties[row["profile"]])
        _predict(unit, demand, row, cores, seed)
    return {
        "rows": alike,
        "errors": _medians(alike),
        "errors_by_state": {
            state: _medians(_with(alike, state=state))
            for state in dict.fromkeys(row["state"] for row in alike)
        },
        "errors_by_fleet": _by_fleet(alike),
        "worst": max(_judged(alike), key=lambda item: float(item["error"])),
        "judged_by_time": sum(row["others"] <= MAX_OTHERS for row in alike),
        "most_error": MAX_ERROR,
        "most_others": MAX_OTHERS,
    }


def _is_alike(unit: costs.Costs, row: Row) -> bool:
    """Whether its batches are as large as those that the costs were measured with."""
    nodes = unit.batch_nodes
    return bool(
        row["batch_nodes"] >= nodes and row["batch_bytes"] >= nodes * row["document_bytes_mean"]
    )


def _judged(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Errors that count: those of time only where the machine was left alone."""
    return [
        {"measure": name, "error": row[f"{name}_error"], "at": row["name"]}
        for row in rows
        for name in PREDICTED
        if name == "cpu" or row["others"] <= MAX_OTHERS
    ]


def _by_fleet(rows: Sequence[Row]) -> list[dict[str, Any]]:
    fleets = dict.fromkeys((row["profile"], row["tags"], row["state"]) for row in rows)
    return [
        {
            "profile": profile,
            "tags": tags,
            "state": state,
            "rows": len(found),
            "median": _medians(found),
            "worst": {name: max(row[f"{name}_error"] for row in found) for name in PREDICTED},
        }
        for profile, tags, state in fleets
        for found in [_with(rows, profile=profile, tags=tags, state=state)]
    ]


def _medians(rows: Sequence[Row]) -> dict[str, float]:
    return {name: _median(rows, name) for name in PREDICTED}


def _row(row: Mapping[str, Any], sweep: Mapping[str, Any]) -> Row:
    found = {name: row[name] for name in NEEDED}
    found |= {name: row[name] if name in row else sweep[name] for name in OF_A_FLEET}
    found |= {"sent_bytes": row.get("sent_bytes", 0), "others": row.get("others", 0.0)}
    found["name"] = (
        f"{found['profile']}, {found['tags']} tags, {found['state']}, {found['workers']} workers"
    )
    return found


def _varieties(rows: Sequence[Row], nodes: int) -> dict[str, float]:
    """By profile, the share of the documents' bytes that was sent."""
    found: dict[str, list[float]] = {row["profile"]: [] for row in rows}
    for row in _with(rows, state="cold"):
        found[row["profile"]].append(row["sent_bytes"] / (nodes * row["document_bytes_mean"]))
    return {name: statistics.median(shares or [0.0]) for name, shares in found.items()}


def _predict(unit: costs.Costs, demand: Demand, row: Row, cores: int, seed: int) -> None:
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


def _with(rows: Sequence[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _median(rows: Sequence[Row], name: str) -> float:
    return round(statistics.median(float(row[f"{name}_error"]) for row in rows), 4)


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
        heads = (
            "measured s",
            "formula",
            "simulation",
            "CPU s",
            "formula's",
            "others",
            "bottleneck",
        )
        table.add_column("")
        for column in heads:
            table.add_column(column, justify="right")
        for row in result["rows"]:
            table.add_row(
                row["name"],
                f"{row['seconds']:.3f}",
                f"{row['formula_seconds']:.3f} ({row['formula_error']:.0%})",
                f"{row['simulated_seconds']:.3f} ({row['simulation_error']:.0%})",
                f"{row['cpu_seconds_total']:.3f}",
                f"{row['formula_cpu_seconds']:.3f} ({row['cpu_error']:.0%})",
                f"{row['others']:.0%}",
                row["bottleneck"],
            )
        console.print(table)
        for state, found in result["errors_by_state"].items():
            errors = ", ".join(f"{name} {error:.1%}" for name, error in found.items())
            console.print(f"median errors, {state}: {errors}")
        for name in PREDICTED:
            key = f"{name}_error"
            error, at = max((float(row[key]), str(row["name"])) for row in result["rows"])
            console.print(f"worst error, {name}: {error:.1%} ({at})")
        judged, rows = result["judged_by_time"], len(result["rows"])
        if judged < rows:
            console.print(
                f"{rows - judged} of {rows} rows were measured while others had more than "
                f"{result['most_others']:.0%} of the machine: of these, CPU seconds are judged"
            )
        console.print(f"Costs: {result['costs']}")

    def fault(self, result: dict[str, Any]) -> str | None:
        worst = result["worst"]
        if worst["error"] <= result["most_error"]:
            return None
        return (
            f"an error of {worst['error']:.0%} ({worst['measure']}; {worst['at']}): calibrate "
            "again (bench calibrate), on an idle machine"
        )
