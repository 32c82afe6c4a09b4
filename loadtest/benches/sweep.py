"""`bench sweep`: batch size x prefetch x workers, cold and warm, and the sweet spot among them;
also with several numbers of tags, on several profiles of documents, to compare a plan with.

CPU seconds, bytes and round trips are the primary figures; wall time is noisy on shared machines,
so that runs alternate (every point once, then every point again in the other order) and medians
are shown with their spread. Every run's tags are compared with lxml's.
"""

from __future__ import annotations

import itertools
import statistics
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.generate import PROFILES, ProfileName
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session, check_sizes, names_of, numbers
from loadtest.references import documents
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.definitions import definitions
from loadtest.rig.rig import Rig, Running, Usage
from loadtest.rig.scratch import scratch_database
from tagmill.fleet.models import Partition

# lxml is asked about a sample of the nodes where there are more, with every definition.
MAX_EVALUATIONS = 500_000
STATES = ("cold", "warm")
MIB = 1 << 20
# Two points whose CPU differs by less are equal; then trips decide, then memory.
SAME = 0.02
# A server sends no larger batch than its own maxima: they must not bound the sweep.
SERVER_BATCH_NODES, SERVER_BATCH_BYTES = 65_536, 64 * MIB
# More than a machine would do in a night.
MAX_RUNS = 2_000


@dataclass(frozen=True)
class Point:
    """One combination. Bytes are of XML for a batch, compressed for the prefetch."""

    batch_nodes: int
    batch_bytes: int
    prefetch: int
    workers: int
    tags: int

    def options(self, evaluator: str | None) -> list[str]:
        chosen = ["--evaluator", evaluator] if evaluator else []
        return [
            *("--batch-nodes", str(self.batch_nodes)),
            *("--batch-bytes", str(self.batch_bytes)),
            *("--prefetch", str(self.prefetch)),
            *chosen,
        ]


@dataclass(frozen=True)
class SweepOptions:
    points: tuple[Point, ...]
    nodes: int
    profiles: tuple[ProfileName, ...]
    repetitions: int
    partition_slots: int | None = None
    evaluator: str | None = None
    seed: int = 1


@dataclass
class Measured:
    """All runs of one point in one state."""

    profile: ProfileName
    point: Point
    state: str
    document_bytes: float = 0.0
    runs: list[Usage] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        seconds = [run.seconds for run in self.runs]
        processes = sorted({name for run in self.runs for name in run.cpu_seconds})
        return {
            **asdict(self.point),
            "profile": self.profile,
            "document_bytes_mean": round(self.document_bytes, 1),
            "state": self.state,
            "seconds": round(statistics.median(seconds), 4),
            "seconds_spread": [min(seconds), max(seconds)],
            "cpu_seconds": {
                name: round(statistics.median(run.cpu_seconds[name] for run in self.runs), 4)
                for name in processes
            },
            "cpu_seconds_total": round(statistics.median(run.cpu_total for run in self.runs), 4),
            "cpu_spread": [
                round(min(run.cpu_total for run in self.runs), 4),
                round(max(run.cpu_total for run in self.runs), 4),
            ],
            "round_trips": round(statistics.median(run.trips_total for run in self.runs)),
            "sent_bytes": round(statistics.median(run.batch_bytes for run in self.runs)),
            "memory_bytes": {
                name: max(run.memory_bytes.get(name, 0) for run in self.runs)
                for name in ("server", "worker")
            },
            "others": round(statistics.median(run.others for run in self.runs), 3),
            "runs": len(self.runs),
        }


class Sweep:
    """Runs on scratch databases, one for each profile."""

    def __init__(self, chosen: SweepOptions, session: Session) -> None:
        self.options = chosen
        self._session = session
        self._definitions = definitions(max(point.tags for point in chosen.points))
        self._found = {
            (profile, point, state): Measured(profile, point, state)
            for profile in chosen.profiles
            for point in chosen.points
            for state in STATES
        }
        self._mismatches = 0
        self._partitions = self._slots = 0

    def run(self) -> dict[str, Any]:
        chosen, say = self.options, self._session.console.print
        settings: dict[str, object] = {
            "batch_nodes": SERVER_BATCH_NODES,
            "batch_bytes": SERVER_BATCH_BYTES,
        }
        if chosen.partition_slots:
            settings["partition_slots"] = chosen.partition_slots
        for profile in chosen.profiles:
            with (
                bench.settings(**settings),
                scratch_database() as url,
                Rig(url, self._session.log) as rig,
            ):
                say(f"generating {chosen.nodes:,} nodes ({profile}); asking lxml", style="dim")
                loader.load(chosen.nodes, seed=chosen.seed, profile=profile)
                self._reference = ask_lxml(self._definitions, MAX_EVALUATIONS)
                rig.create_tags(self._definitions)
                first = chosen.points[0]
                with rig.stack(first.workers, first.options(chosen.evaluator)) as running:
                    running.settle()
                rig.tidy()
                self._all(rig, profile)
                self._fleet(profile)
        return self._result()

    def _fleet(self, profile: ProfileName) -> None:
        self._partitions = Partition.objects.count()
        self._slots = Partition.objects.values_list("capacity", flat=True)[0]
        size = documents.mean_bytes()
        for found in self._found.values():
            if found.profile == profile:
                found.document_bytes = size

    def _all(self, rig: Rig, profile: ProfileName) -> None:
        chosen = self.options
        with bench.progress(self._session.console) as progress:
            task = progress.add_task("", total=len(chosen.points) * chosen.repetitions)
            for repetition in range(chosen.repetitions):
                for point in chosen.points[:: -1 if repetition % 2 else 1]:
                    progress.update(task, description=_label(point))
                    with rig.stack(point.workers, point.options(chosen.evaluator)) as running:
                        self._point(profile, point, running)
                    self._mismatches += mismatches(self._reference)
                    progress.advance(task)

    def _point(self, profile: ProfileName, point: Point, running: Running) -> None:
        names = list(self._definitions)[: point.tags]
        self._found[profile, point, "cold"].runs.append(running.measure(names))
        self._found[profile, point, "warm"].runs.append(running.measure_warm(names))

    def _result(self) -> dict[str, Any]:
        rows = [item.as_json() for item in self._found.values()]
        return {
            "bench": "sweep",
            "machine": bench.machine(),
            "nodes": self.options.nodes,
            "tags": sorted({point.tags for point in self.options.points}),
            "profiles": list(self.options.profiles),
            "partitions": self._partitions,
            "partition_slots": self._slots,
            "evaluator": self.options.evaluator or "default",
            "repetitions": self.options.repetitions,
            "points": rows,
            "sweet_spot": sweet_spots(rows),
            "mismatches": self._mismatches,
        }


def sweet_spots(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By state; none where the rows are of several fleets."""
    if len({(row["profile"], row["tags"]) for row in rows}) > 1:
        return {}
    return {state: sweet_spot([row for row in rows if row["state"] == state]) for state in STATES}


def sweet_spot(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row with the least CPU; among those that are as good, the fewest trips, then memory."""
    least = min(row["cpu_seconds_total"] for row in rows)
    good = [row for row in rows if row["cpu_seconds_total"] <= least * (1 + SAME)]
    return min(good, key=lambda row: (row["round_trips"], row["memory_bytes"]["worker"]))


def _label(point: Point) -> str:
    return (
        f"{point.tags} tags, {point.batch_nodes} nodes, {point.batch_bytes // 1024} KiB, "
        f"prefetch {point.prefetch // 1024} KiB, {point.workers} workers"
    )


class SweepBench(Bench):
    name = "sweep"
    help = (
        "batch size x prefetch x workers, cold and warm: the sweet spot; tags x profile: a plan's"
    )
    # One for each profile.
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=10_000)
        parser.add_argument("--tags", type=numbers, default=[8], metavar="N,N")
        parser.add_argument("--batch-nodes", type=numbers, default=[64, 256, 1024], metavar="N,N")
        parser.add_argument(
            "--batch-bytes", type=numbers, default=[MIB, 4 * MIB, 16 * MIB], metavar="N,N"
        )
        parser.add_argument("--prefetch", type=numbers, default=[MIB, 16 * MIB], metavar="N,N")
        parser.add_argument("--workers", type=numbers, default=[1, 2], metavar="N,N")
        parser.add_argument(
            "--profile", type=names_of(PROFILES), default=["lean"], metavar="NAME,NAME"
        )
        parser.add_argument("--partition-slots", type=int, help="instead of the setting's")
        parser.add_argument("--evaluator", help="the workers' --evaluator")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--repetitions", type=int, default=3, help="medians are over these")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        names = ("batch_nodes", "batch_bytes", "prefetch", "workers", "tags")
        axes = (options[name] for name in names)
        points = tuple(Point(*values) for values in itertools.product(*axes))
        check_sizes(options, "nodes", "tags", "workers", "repetitions")
        if len(points) * len(options["profile"]) * options["repetitions"] > MAX_RUNS:
            raise BenchError(f"more than {MAX_RUNS} runs: choose fewer points")
        names = ("nodes", "repetitions", "partition_slots", "evaluator", "seed")
        chosen_options = {name: options[name] for name in names}
        chosen = SweepOptions(points, profiles=tuple(options["profile"]), **chosen_options)
        return Sweep(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        for state in STATES:
            rows = [row for row in result["points"] if row["state"] == state]
            best = result["sweet_spot"].get(state)
            table = Table(title=f"{result['nodes']:,} nodes, {state}")
            for column in (
                "profile",
                "tags",
                "nodes/MiB/ahead/workers",
                "CPU s",
                "API",
                "db",
                "work",
                "trips",
                "MB",
                "peak",
                "seconds",
            ):
                table.add_column(column, justify="right")
            for row in rows:
                used, (low, high) = row["cpu_seconds"], row["seconds_spread"]
                table.add_row(
                    row["profile"],
                    str(row["tags"]),
                    f"{row['batch_nodes']}/{row['batch_bytes'] / MIB:g}/"
                    f"{row['prefetch'] / MIB:g}/{row['workers']}",
                    f"{row['cpu_seconds_total']:.2f}",
                    f"{used.get('server', 0):.2f}",
                    f"{used.get('database', 0):.2f}",
                    f"{used.get('worker', 0):.2f}",
                    f"{row['round_trips']:,}",
                    f"{row['sent_bytes'] / 1e6:.2f}",
                    f"{row['memory_bytes']['worker'] / 1e6:.0f}",
                    f"{row['seconds']:.2f} ({low:.2f}..{high:.2f})",
                    style="bold" if row is best else "",
                )
            console.print(table)
        console.print("MB: sent in batches; peak: a worker's memory, MB; bold: the sweet spot")
        console.print(f"mismatches with lxml: {result['mismatches']}")
