"""`bench growth`: how time, memory and the database grow with nodes and tags; updates under load.

One scratch database grows from the smallest fleet to the largest. An exponent is the slope of a
least-squares line through the logarithms: 1 is proportional, 0 constant.
"""

from __future__ import annotations

import math
import statistics
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.generate import PROFILES, ProfileName
from loadtest import bench
from loadtest.bench import Bench, Session, check_sizes, numbers
from loadtest.references.answers import Reference, ask_lxml, mismatches
from loadtest.rig.definitions import definitions
from loadtest.rig.ingest import under_load
from loadtest.rig.rig import Rig, Usage, peaks

NODES = [1_000, 3_000, 10_000, 30_000, 100_000]
TAGS = [1, 10, 100, 500]
# Evaluations by lxml for one comparison: about a minute.
MAX_EVALUATIONS = 1_000_000
# Memory that an empty worker differs by from run to run.
NOISE_BYTES = 1 << 20
TABLES = ("node", "document", "partition", "match", "match_change")


@dataclass(frozen=True)
class GrowthOptions:
    nodes: tuple[int, ...]
    tags: tuple[int, ...]
    workers: int
    ingest_seconds: float
    uploaders: int
    repetitions: int = 1
    profile: ProfileName = "lean"
    evaluator: str | None = None
    seed: int = 1


@dataclass
class Point:
    """Runs with `nodes` nodes and `tags` tags. `base_bytes`: a worker's before its first lease."""

    nodes: int
    tags: int
    cold: list[Usage] = field(default_factory=list)
    warm: list[Usage] = field(default_factory=list)
    base_bytes: list[int] = field(default_factory=list)
    database_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        peak = max(run.memory_bytes["worker"] for run in self.cold + self.warm)
        return {
            "nodes": self.nodes,
            "tags": self.tags,
            "cold_seconds": _median(run.seconds for run in self.cold),
            "warm_seconds": _median(run.seconds for run in self.warm),
            "cold_cpu_seconds": _median(run.cpu_total for run in self.cold),
            "warm_cpu_seconds": _median(run.cpu_total for run in self.warm),
            "cold_spread": [min(u.seconds for u in self.cold), max(u.seconds for u in self.cold)],
            "warm_spread": [min(u.seconds for u in self.warm), max(u.seconds for u in self.warm)],
            "worker_memory_bytes": peak,
            "worker_base_bytes": min(self.base_bytes),
            "memory_bytes": max(NOISE_BYTES, peak - min(self.base_bytes)),
            "database_bytes": self.database_bytes,
        }


class Growth:
    """One run on the scratch database."""

    def __init__(self, chosen: GrowthOptions, session: Session) -> None:
        self.options = chosen
        self._session = session
        self._definitions = definitions(max(chosen.tags))
        self._points: list[Point] = []
        self._mismatches = 0
        self._evaluations = 0

    def run(self) -> dict[str, Any]:
        chosen, present = self.options, 0
        updates: dict[str, Any] | None = None
        with Rig(self._session.url, self._session.log) as rig:
            rig.create_tags(self._definitions)
            for nodes in sorted(chosen.nodes):
                self._say(f"{nodes:,} nodes: generating, asking lxml")
                loader.load(nodes - present, seed=chosen.seed, profile=chosen.profile)
                present = nodes
                self._fleet(rig, nodes, ask_lxml(self._definitions, MAX_EVALUATIONS))
            if chosen.ingest_seconds:
                self._say(f"updates while rebuilds run, {chosen.ingest_seconds:g} s")
                updates = self._updates(rig)
        return self._result(updates)

    def _fleet(self, rig: Rig, nodes: int, reference: Reference) -> None:
        with rig.stack(self.options.workers, self._options) as first:
            first.settle()
        rig.tidy()
        points = [Point(nodes, tags) for tags in sorted(self.options.tags)]
        with bench.progress(self._session.console) as progress:
            task = progress.add_task("", total=len(points) * self.options.repetitions)
            for repetition in range(self.options.repetitions):
                for point in points[:: -1 if repetition % 2 else 1]:
                    progress.update(task, description=f"{nodes:,} nodes, {point.tags} tags")
                    self._measure(rig, point)
                    self._check(reference)
                    progress.advance(task)
        for point in points:
            point.database_bytes = database_bytes()
        self._points += points

    def _measure(self, rig: Rig, point: Point) -> None:
        names = list(self._definitions)[: point.tags]
        with rig.stack(self.options.workers, self._options) as running:
            point.base_bytes.append(peaks(running.stack.pids())["worker"])
            point.cold.append(running.measure(names))
            point.warm.append(running.measure_warm(names))

    def _updates(self, rig: Rig) -> dict[str, Any]:
        names = list(self._definitions)
        with rig.stack(self.options.workers, self._options) as running:
            found = under_load(running, names, self.options.ingest_seconds, self.options.uploaders)
        self._check(ask_lxml(self._definitions, MAX_EVALUATIONS))
        return found

    def _check(self, reference: Reference) -> None:
        self._mismatches += mismatches(reference)
        self._evaluations += reference.evaluations

    @property
    def _options(self) -> list[str]:
        return ["--evaluator", self.options.evaluator] if self.options.evaluator else []

    def _result(self, updates: dict[str, Any] | None) -> dict[str, Any]:
        points = [point.as_json() for point in self._points]
        return {
            "bench": "growth",
            "machine": bench.machine(),
            "workers": self.options.workers,
            "profile": self.options.profile,
            "evaluator": self.options.evaluator or "default",
            "repetitions": self.options.repetitions,
            "exponents": exponents(points, "nodes", "tags"),
            "tag_exponents": exponents(points, "tags", "nodes"),
            "points": points,
            "updates": updates,
            "compared_evaluations": self._evaluations,
            "mismatches": self._mismatches,
        }

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")


MEASURES = {
    "cold": "cold_seconds",
    "warm": "warm_seconds",
    "cold_cpu": "cold_cpu_seconds",
    "warm_cpu": "warm_cpu_seconds",
    "memory": "memory_bytes",
    "database": "database_bytes",
}


def exponents(points: Sequence[dict[str, Any]], along: str, group: str) -> dict[str, float | None]:
    """The exponent of each measure along `nodes` or `tags`; None where there is one size only."""
    return {
        name: exponent([(row[group], row[along], row[key]) for row in points])
        for name, key in MEASURES.items()
    }


def exponent(points: Sequence[tuple[float, float, float]]) -> float | None:
    """The common slope of log y over log x, of (group, x, y): each group has its own height."""
    above, below = 0.0, 0.0
    for group in {point[0] for point in points}:
        logs = [(math.log(x), math.log(max(y, 1e-9))) for g, x, y in points if g == group]
        mean_x = statistics.fmean(x for x, _ in logs)
        mean_y = statistics.fmean(y for _, y in logs)
        above += sum((x - mean_x) * (y - mean_y) for x, y in logs)
        below += sum((x - mean_x) ** 2 for x, _ in logs)
    return round(above / below, 3) if below else None


def database_bytes() -> int:
    """What the fleet and its matches take, with indexes and the audit trail."""
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {', '.join(TABLES)}")
        cursor.execute(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name",
            [list(TABLES)],
        )
        return int(cursor.fetchone()[0])


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 4)


class GrowthBench(Bench):
    name = "growth"
    help = "how time, memory and the database grow with nodes and tags; updates under load"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=numbers, default=NODES, metavar="N,N")
        parser.add_argument("--tags", type=numbers, default=TAGS, metavar="N,N")
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument(
            "--ingest-seconds", type=float, default=20.0, help="updates under load; 0: none"
        )
        parser.add_argument("--uploaders", type=int, default=4, help="connections that upload")
        parser.add_argument("--repetitions", type=int, default=1, help="medians are over these")
        parser.add_argument("--profile", choices=PROFILES, default="lean")
        parser.add_argument("--evaluator", help="the workers' --evaluator")
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "tags", "workers", "uploaders", "repetitions")
        names = ["workers", "ingest_seconds", "uploaders", "repetitions"]
        names += ["profile", "evaluator", "seed"]
        chosen = GrowthOptions(
            nodes=tuple(sorted(set(options["nodes"]))),
            tags=tuple(sorted(set(options["tags"]))),
            **{name: options[name] for name in names},
        )
        return Growth(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title=f"{result['workers']} workers")
        for column in ("nodes", "tags", "cold s", "warm s", "cold CPU s", "warm CPU s"):
            table.add_column(column, justify="right")
        table.add_column("worker MB", justify="right")
        table.add_column("database MB", justify="right")
        for row in result["points"]:
            table.add_row(
                f"{row['nodes']:,}",
                str(row["tags"]),
                f"{row['cold_seconds']:.3f}",
                f"{row['warm_seconds']:.3f}",
                f"{row['cold_cpu_seconds']:.2f}",
                f"{row['warm_cpu_seconds']:.2f}",
                f"{row['worker_memory_bytes'] / 1e6:.0f}",
                f"{row['database_bytes'] / 1e6:.1f}",
            )
        console.print(table)
        for along, key in (("nodes", "exponents"), ("tags", "tag_exponents")):
            shown = ", ".join(
                f"{name} {value:.2f}" for name, value in result[key].items() if value is not None
            )
            console.print(f"exponents in {along}: {shown}")
        if updates := result["updates"]:
            console.print(
                f"{updates['accepted_per_second']:.1f} updates/s accepted while "
                f"rebuilds ran ({updates['rebuilds']} ended); from an update to its tags "
                f"{updates['delay_p50_ms']:.0f} ms (p95 {updates['delay_p95_ms']:.0f} ms)"
            )
        console.print(
            f"mismatches with lxml: {result['mismatches']} of {result['compared_evaluations']:,}"
        )
