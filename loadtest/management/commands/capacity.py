"""`manage.py capacity`: from measured unit costs to the processes that a fleet needs."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from loadtest.bench import BenchError, write_json
from loadtest.planner import costs
from loadtest.planner.capacity import MAX_NODES, CapacityPlan, Demand, plan, round_seconds
from loadtest.planner.simulation import Simulated, simulate

MAX_TAGS = 100_000
# The formula and the simulation, or either and a measurement, may differ by this share.
MAX_ERROR = 0.25
# Units of the table, powers of 1000.
SCALES = ("B", "kB", "MB", "GB", "TB", "PB")


class Command(BaseCommand):
    help = "Plan workers, API servers and the database for a fleet, and check it by simulation."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--nodes", type=int, default=100_000)
        parser.add_argument("--tags", type=int, default=200)
        parser.add_argument(
            "--target", type=duration, default=30.0, help="time of one rebuild, as 30s or 2m"
        )
        parser.add_argument("--cold", action="store_true", help="the workers hold nothing yet")
        parser.add_argument("--slots", type=int, help="slots of a partition, not those measured")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument(
            "--calibrate", type=Path, metavar="FILE", help="unit costs by `bench calibrate`"
        )
        parser.add_argument("--json", type=Path, metavar="FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["nodes"] <= MAX_NODES or not 1 <= options["tags"] <= MAX_TAGS:
            raise CommandError(f"--nodes is 1 to {MAX_NODES:,}, --tags 1 to {MAX_TAGS:,}")
        if options["slots"] is not None and options["slots"] < 1:
            raise CommandError("--slots must be positive")
        try:
            unit = costs.load(options["calibrate"] or costs.DEFAULT)
        except BenchError as error:
            raise CommandError(str(error)) from None
        if options["slots"]:
            unit = replace(unit, partition_slots=options["slots"])
        demand = Demand(options["nodes"], options["tags"], options["target"], options["cold"])
        made = plan(unit, demand)
        began = time.perf_counter()
        simulated = simulate(unit, demand, made.deployment, options["seed"])
        result = as_json(unit, made, simulated, time.perf_counter() - began)
        show(Console(), unit, made, result)
        if options["json"]:
            write_json(options["json"], result)
        if result["error"] > MAX_ERROR:
            raise CommandError(
                f"formula and simulation differ by {result['error']:.0%}: do not trust this plan"
            )


def as_json(
    unit: costs.Costs, made: CapacityPlan, simulated: Simulated, simulation_took: float
) -> dict[str, Any]:
    deployment, prediction = made.deployment, made.prediction
    return {
        "bench": "capacity",
        "demand": asdict(made.demand),
        "costs": unit.name,
        "evaluator": unit.evaluator,
        "partitions": made.partitions,
        "partition_slots": unit.partition_slots,
        "workers": deployment.workers,
        "api_servers": deployment.api_servers,
        "database_cores": deployment.database_cores,
        "bottleneck": prediction.bottleneck,
        "feasible": made.is_feasible,
        "seconds": round(prediction.seconds, 4),
        "simulated_seconds": round(simulated.seconds, 4),
        "error": round(abs(prediction.seconds / simulated.seconds - 1), 4),
        "stages": {name: round(value, 4) for name, value in prediction.stages.items()},
        "cpu_seconds": {name: round(value, 3) for name, value in made.cpu_seconds.items()},
        "utilisation": {name: round(value, 4) for name, value in made.utilisation.items()},
        "simulated_utilisation": {
            name: round(value, 4) for name, value in simulated.utilisation.items()
        },
        "simulated_lease_p95_ms": round(simulated.lease_p95_seconds * 1000, 2),
        "simulation_took_seconds": round(simulation_took, 3),
        "workers_per_api_server": round(made.workers_per_api_server, 2)
        if math.isfinite(made.workers_per_api_server)
        else None,
        "database_bytes": round(made.database_bytes),
        "network_bytes": round(made.network_bytes),
        "network_bytes_per_second": round(made.network_bytes_per_second),
        "worker_memory_bytes": round(made.worker_memory_bytes),
        "formula": made.formula,
    }


def show(console: Console, unit: costs.Costs, made: CapacityPlan, result: dict[str, Any]) -> None:
    demand = made.demand
    state = "cold" if demand.is_cold else "warm"
    table = Table(
        title=f"{demand.nodes:,} nodes, {demand.tags:,} tags, {demand.target:g} s, {state}"
    )
    table.add_column("needed")
    table.add_column("", justify="right")
    table.add_column("busy", justify="right")
    busy = made.utilisation
    rows = (
        ("workers, a core each", f"{result['workers']:,}", f"{busy['worker']:.0%}"),
        ("API servers, a core each", f"{result['api_servers']:,}", f"{busy['api']:.0%}"),
        ("database cores", f"{result['database_cores']:,}", f"{busy['database']:.0%}"),
        ("database disk", size(made.database_bytes), ""),
        ("network", size(made.network_bytes_per_second) + "/s", ""),
        ("memory a worker", size(made.worker_memory_bytes), ""),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in made.formula:
        console.print(line, style="dim", highlight=False)
    console.print(
        f"formula {result['seconds']:.2f} s, simulation {result['simulated_seconds']:.2f} s: "
        f"error {result['error']:.1%}. Bottleneck: {result['bottleneck']}. "
        f"Costs: {unit.name} ({unit.evaluator})."
    )
    if not made.is_feasible:
        console.print(
            f"The target of {demand.target:g} s is not met: {why(unit, made)}", style="bold"
        )


def why(unit: costs.Costs, made: CapacityPlan) -> str:
    """What no number of servers would mend."""
    each = round_seconds(unit, made.demand, made.deployment.workers)
    if unit.fixed_seconds >= made.demand.target:
        return "every rebuild takes longer for its requests alone."
    if made.deployment.workers == made.partitions and each > made.demand.target:
        return "one worker needs longer for one partition. Make partitions smaller (--slots)."
    return "workers that ask at the same moment queue for the API. Allow a little more."


def size(count: float) -> str:
    for unit in SCALES[:-1]:
        if count < 1000:  # noqa: PLR2004 - powers of 1000
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} {SCALES[-1]}"


def duration(text: str) -> float:
    """Seconds, from `30`, `30s`, `500ms` or `2m`. Raises ValueError."""
    for suffix, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)):
        if text.endswith(suffix):
            seconds = float(text.removesuffix(suffix)) * factor
            if not 0 < seconds < float("inf"):
                raise ValueError(f"{text!r} is no time for a rebuild")
            return seconds
    raise ValueError(text)
