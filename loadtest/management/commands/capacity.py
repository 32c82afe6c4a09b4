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

from loadtest.bench import BenchError, read_json, write_json
from loadtest.planner import costs
from loadtest.planner.capacity import MAX_NODES, round_seconds
from loadtest.planner.demand import DOCUMENT_BYTES, VARIETY, Demand, State
from loadtest.planner.plan import MAX_TAGS, CapacityPlan, plan
from loadtest.planner.simulation import Simulated, simulate
from loadtest.planner.tiers import with_tiers

MAX_DOCUMENT_BYTES = 1 << 30
# The formula and the simulation, or either and a measurement, may differ by this share.
MAX_ERROR = 0.25
# Units of the table, powers of 1000.
STATES_HELP: dict[State, str] = {
    "warm": "the workers were started again: they have the fleet on their disks",
    "shared": "the workers are new: they take the images that others have shared",
    "cold": "the workers hold nothing, and nothing is shared: documents are sent",
}
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
        states = parser.add_mutually_exclusive_group()
        for state, text in STATES_HELP.items():
            states.add_argument(
                f"--{state}", action="store_const", const=state, dest="state", help=text
            )
        parser.add_argument(
            "--tiers",
            type=Path,
            nargs="+",
            default=[],
            metavar="FILE",
            help="costs of `--warm` and `--shared`, by `bench tiers`: best of several profiles",
        )
        parser.add_argument(
            "--document-bytes",
            type=float,
            metavar="N",
            help=f"of a node's documents, in the mean (default: {DOCUMENT_BYTES:,.0f})",
        )
        parser.add_argument(
            "--variety",
            type=float,
            metavar="SHARE",
            help="of these bytes, what is left when 256 nodes' documents are compressed together: "
            f"0 to 1 (default: {VARIETY:g})",
        )
        parser.add_argument(
            "--profile",
            metavar="NAME",
            help="both, as the cost file has them for a profile of the fleet generator",
        )
        parser.add_argument(
            "--searching",
            type=float,
            metavar="SHARE",
            help="of the definitions, those that search each document: that count or compare, "
            "0 to 1 (default: as in the benches, all but eight)",
        )
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
            if options["tiers"]:
                unit = with_tiers(unit, [read_json(path) for path in options["tiers"]])
        except BenchError as error:
            raise CommandError(str(error)) from None
        if (state := options["state"] or "hot") not in unit.states:
            raise CommandError(
                f"--{state}: the cost file does not say what it costs: give --tiers FILE, which "
                "`bench tiers --json FILE` makes"
            )
        if options["slots"]:
            unit = replace(unit, partition_slots=options["slots"])
        made = plan(unit, demand := demanded(unit, options))
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


def demanded(unit: costs.Costs, options: dict[str, Any]) -> Demand:
    """Raises CommandError."""
    size, variety = options["document_bytes"], options["variety"]
    if name := options["profile"]:
        if name not in unit.profiles:
            known = ", ".join(unit.profiles) or "none"
            raise CommandError(f"--profile: the cost file has no {name!r}, but {known}")
        profile = unit.profiles[name]
        size = profile["document_bytes"] if size is None else size
        variety = profile["variety"] if variety is None else variety
    size = DOCUMENT_BYTES if size is None else size
    variety = VARIETY if variety is None else variety
    if not 1 <= size <= MAX_DOCUMENT_BYTES:
        raise CommandError(f"--document-bytes is 1 to {MAX_DOCUMENT_BYTES:,}")
    for option, share in (("variety", variety), ("searching", options["searching"])):
        if share is not None and not 0 <= share <= 1:
            raise CommandError(f"--{option} is 0 to 1")
    return Demand(
        nodes=options["nodes"],
        tags=options["tags"],
        target=options["target"],
        state=options["state"] or "hot",
        document_bytes=size,
        variety=variety,
        searching=options["searching"],
    )


def as_json(
    unit: costs.Costs, made: CapacityPlan, simulated: Simulated, simulation_took: float
) -> dict[str, Any]:
    deployment, prediction = made.deployment, made.prediction
    return {
        "bench": "capacity",
        "demand": asdict(made.demand),
        "assumptions": made.assumptions,
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
        "seconds_by_state": {
            state: round(found.seconds, 4) for state, found in made.predictions.items()
        },
        "spare": asdict(made.spare),
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
        "network_bytes": {state: round(sent) for state, sent in made.network_bytes.items()},
        "network_bytes_per_second": round(per_second(made, made.demand.state)),
        "worker_memory_bytes": round(made.worker.memory),
        "worker_image_bytes": made.worker.image_bytes,
        "worker_store_bytes": made.worker.store_bytes,
        "worker_flags": made.worker.flags,
        "formula": made.formula,
    }


def per_second(made: CapacityPlan, state: State) -> float:
    """Bytes on the wire, over the predicted time."""
    return made.network_bytes[state] / made.predictions[state].seconds


def show(console: Console, unit: costs.Costs, made: CapacityPlan, result: dict[str, Any]) -> None:
    demand = made.demand
    state = demand.state
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
        ("memory a worker", size(made.worker.memory), ""),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
    both = Table(title="with these processes")
    for column in ("", "seconds", "network", "sent"):
        both.add_column(column, justify="left" if not column else "right")
    for name, found in made.predictions.items():
        sent = (size(per_second(made, name)) + "/s", size(made.network_bytes[name]))
        both.add_row(name, f"{found.seconds:.2f}", *sent)
    console.print(both)
    console.print(f"each worker: {made.worker.flags}", highlight=False)
    spare = made.spare
    console.print(
        f"spare: the same would do {spare.nodes:,} nodes, or {spare.tags:,} tags, in the target"
        if spare.nodes
        else "spare: nothing",
        highlight=False,
    )
    for line in made.formula:
        console.print(line, style="dim", highlight=False)
    console.print("assumed:")
    for line in made.assumptions:
        console.print(f"- {line}", highlight=False)
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
