"""`bench calibrate`: this machine's unit costs, for `manage.py capacity --calibrate FILE`.

Rebuilds by one worker, cold and warm, with one tag to hundreds, of fleets of each profile of the
generator, whose documents differ in size and in what is a node's own. Of the first profile also in
few and many leases, and in large and in small partitions. The CPU seconds of each process are
fitted as a sum of unit costs, none below zero, by least squares of relative errors; the fit must
come close to every observation, not to most of them. What every lease spends on each waiting
partition is too little to be seen there, and measured by itself.
"""

from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import connection, transaction
from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.generate import PROFILES, ProfileName, generate
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session, names_of, numbers
from loadtest.planner.costs import UNITS, units
from loadtest.planner.demand import Demand
from loadtest.planner.fitting import least_squares, medians, relative
from loadtest.references import documents
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.definitions import definitions
from loadtest.rig.rig import Rig, Usage, peaks
from loadtest.rig.scratch import scratch_database
from tagmill import config, sql
from tagmill.fleet.models import Cluster, Partition
from tagmill.work import leases, policy, queue
from tagmill_wire import bitmap, messages
from tagmill_worker.evaluators import base
from tagmill_worker.settings import Settings

# What each process may depend on: only a worker knows of nodes that it holds already.
_SHARED = ("lease", "partition", "match", "cold_node", "cold_byte", "cold_own_byte")
DEPENDS = {
    "worker": (*_SHARED, "node", "evaluation", "search", "search_byte", "search_own_byte"),
    "api": (*_SHARED, "rebuild", "tag"),
    "database": (*_SHARED, "rebuild", "tag"),
}
PROCESS_NAMES = {"worker": "worker", "api": "server", "database": "database"}
SMALL_SLOTS = 64
TAGS = [1, 8, 64, 256, 500]
# lxml is asked about a sample of the nodes, with every definition.
MAX_EVALUATIONS = 200_000
# Leases of as many partitions as the queue gives, and of one: what a lease costs by itself.
MAX_PARTITIONS = 64
# The candidates of a lease: large enough that a scan shows, and taken away again.
WAITING = (250, 2_000)
LOOKS = 9
# The fit may be off by this much at its worst observation.
MAX_ERROR = 0.25
# What a plan leaves free. Above these, queues grow faster than the formula's tolerance.
UTILISATION = {"worker": 0.9, "api": 0.7, "database": 0.7}


@dataclass(frozen=True)
class Fleet:
    """`own_bytes`: of a node's documents, what is left where a batch is compressed; `image_bytes`:
    of a node among as many as a partition has."""

    profile: ProfileName
    document_bytes: float
    own_bytes: float
    database_bytes: float
    worker_bytes: float
    image_bytes: float

    @property
    def variety(self) -> float:
        return self.own_bytes / self.document_bytes


@dataclass(frozen=True)
class Observation:
    """`most`: partitions of a lease at most; `slots`: of each partition."""

    profile: str
    state: str
    tags: int
    nodes: int
    partitions: int
    document_bytes: float
    most: int
    slots: int
    used: Usage

    @property
    def name(self) -> str:
        return (
            f"{self.profile}, {self.tags} tags, {self.state}, {self.partitions} partitions in "
            f"{self.leases} leases"
        )

    @property
    def leases(self) -> int:
        return self.used.round_trips.get("lease", 1)

    def counts(self, variety: float) -> dict[str, float]:
        """`waiting` is measured by itself."""
        is_cold = self.state == "cold"
        demand = Demand(self.nodes, self.tags, 1.0, is_cold, self.document_bytes, variety)
        return units(demand, self.partitions, self.leases, 0.0)

    def seconds(self, process: str) -> float:
        name = PROCESS_NAMES[process]
        if name not in self.used.cpu_seconds:
            raise BenchError(
                "the database's CPU seconds are not to be seen: calibrate with the embedded "
                "PostgreSQL"
            )
        return self.used.cpu_seconds[name]


@dataclass(frozen=True)
class Series:
    """Rebuilds of one fleet: `nodes` more, in partitions of `slots`."""

    nodes: int
    slots: int
    tags: tuple[int, ...]
    most: int


@dataclass(frozen=True)
class CalibrateOptions:
    nodes: int
    tags: tuple[int, ...]
    profiles: tuple[ProfileName, ...]
    repetitions: int = 1
    evaluator: str | None = None
    seed: int = 1
    most_error: float = MAX_ERROR

    def series(self, *, is_first: bool) -> Iterator[Series]:
        slots = config.load().partition_slots
        yield Series(self.nodes, slots, self.tags, MAX_PARTITIONS)
        if is_first:
            ends = tuple(dict.fromkeys((self.tags[0], self.tags[-1])))
            yield Series(0, slots, ends, 1)
            yield Series(self.nodes // 4, SMALL_SLOTS, self.tags, MAX_PARTITIONS)
            yield Series(0, SMALL_SLOTS, ends, 1)


class Calibration:
    """Runs on scratch databases, one for each profile."""

    def __init__(self, chosen: CalibrateOptions, session: Session) -> None:
        self._chosen = chosen
        self._options = ["--evaluator", chosen.evaluator] if chosen.evaluator else []
        self._evaluator = chosen.evaluator or "auto"
        self._session = session
        self._definitions = definitions(max(chosen.tags))
        self._seen: list[Observation] = []
        self._fleets: dict[str, Fleet] = {}
        self._bases: list[int] = []
        self._waiting: dict[str, float] = {}
        self._match_bytes = 0.0
        self._mismatches = 0

    def run(self) -> dict[str, Any]:
        for profile in self._chosen.profiles:
            with (
                scratch_database() as url,
                Rig(url, self._session.log) as rig,
                bench.progress(self._session.console) as progress,
            ):
                rig.create_tags(self._definitions)
                series = list(self._chosen.series(is_first=not self._fleets))
                runs = sum(len(item.tags) for item in series) * self._chosen.repetitions
                task = progress.add_task(profile, total=runs)
                for item in series:
                    self._series(rig, profile, item, partial(progress.advance, task))
        return self._result()

    def _series(
        self, rig: Rig, profile: ProfileName, series: Series, advance: Callable[[], None]
    ) -> None:
        if series.nodes:
            with bench.settings(partition_slots=series.slots):
                loader.load(series.nodes, seed=self._chosen.seed, profile=profile)
            with rig.stack(1, self._options) as first:
                first.settle()
            rig.tidy()
        reference = ask_lxml(self._definitions, MAX_EVALUATIONS)
        options = [*self._options, "--max-partitions", str(series.most)]
        found: dict[tuple[str, int], list[Usage]] = {}
        for repetition in range(self._chosen.repetitions):
            for tags in series.tags[:: -1 if repetition % 2 else 1]:
                names = list(self._definitions)[:tags]
                with rig.stack(1, options) as running:
                    self._bases.append(peaks(running.stack.pids())["worker"])
                    found.setdefault(("cold", tags), []).append(running.measure(names))
                    found.setdefault(("warm", tags), []).append(running.measure_warm(names))
                    row = running.api.get("workers/")["results"][0]
                    self._evaluator = str(row["evaluator"])
                advance()
        self._mismatches += mismatches(reference)
        partitions, nodes = Partition.objects.count(), loaded_nodes()
        size = documents.mean_bytes()
        made = [
            Observation(
                profile, state, tags, nodes, partitions, size, series.most, series.slots, used
            )
            for (state, tags), runs in found.items()
            for used in [middle(runs)]
        ]
        self._seen += made
        if profile not in self._fleets:
            self._fleets[profile] = self._fleet(profile, made)
        if not self._waiting:
            self._waiting = candidate_seconds()
            self._match_bytes = match_bytes()

    def _fleet(self, profile: ProfileName, made: Sequence[Observation]) -> Fleet:
        cold = [item for item in made if item.state == "cold"]
        held = statistics.median(item.used.memory_bytes["worker"] for item in cold)
        base = statistics.median(self._bases)
        return Fleet(
            profile,
            document_bytes=cold[0].document_bytes,
            own_bytes=statistics.median(item.used.batch_bytes / item.nodes for item in cold),
            database_bytes=node_bytes(),
            worker_bytes=max(0.0, held - base) / cold[0].nodes,
            image_bytes=image_bytes(profile, self._chosen.seed) if self._is_kernel else 0.0,
        )

    @property
    def _is_kernel(self) -> bool:
        return self._evaluator == "kernel"

    def _result(self) -> dict[str, Any]:
        seconds = {process: self._fit(process) for process in DEPENDS}
        for process, cost in self._waiting.items():
            seconds[process]["waiting"] = cost
        rows = [self._as_json(item, seconds) for item in self._seen]
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        return {
            "name": f"bench calibrate, {today}, {bench.machine()['processor']}",
            "bench": "calibrate",
            "machine": bench.machine(),
            "evaluator": self._evaluator,
            "partition_slots": config.load().partition_slots,
            "batch_nodes": min(config.load().batch_nodes, int(parser_defaults()["batch_nodes"])),
            "overlap": True,
            "fixed_seconds": round(self._fixed(), 4),
            "seconds": {
                process: {unit: float(f"{cost:.4g}") for unit, cost in table.items() if cost}
                for process, table in seconds.items()
            },
            "bytes": {name: float(f"{size:.5g}") for name, size in self._bytes().items()},
            "utilisation": UTILISATION,
            "profiles": {name: fleet_json(fleet) for name, fleet in self._fleets.items()},
            "how": HOW,
            "fit_error": medians({key: [row["errors"][key] for row in rows] for key in MEASURES}),
            "fit_worst": {key: worst(rows, key) for key in MEASURES},
            "most_error": self._chosen.most_error,
            "observations": rows,
            "mismatches": self._mismatches,
        }

    def _counts(self, item: Observation) -> dict[str, float]:
        return item.counts(self._fleets[item.profile].variety)

    def _fit(self, process: str) -> dict[str, float]:
        names = DEPENDS[process]
        counted = [self._counts(item) for item in self._seen]
        rows = [[counts[unit] for unit in names] for counts in counted]
        spent = [item.seconds(process) for item in self._seen]
        # An error counts by what the whole rebuild used, where a process used little of it.
        least = [0.1 * item.used.cpu_total for item in self._seen]
        return dict(zip(names, least_squares(rows, spent, least), strict=True))

    def _fixed(self) -> float:
        """The part of a rebuild in which nobody computes, where that is the least."""
        return max(0.0, min(item.used.seconds - item.used.cpu_total for item in self._seen))

    def _bytes(self) -> dict[str, float]:
        fleets = list(self._fleets.values())
        base = statistics.median(self._bases)
        found = {"wire_cold_own_byte": 1.0, "store_own_byte": 1.0, "worker_base": base}
        slots = config.load().partition_slots
        found |= wire_bytes(slots, list(self._definitions.values()))
        found["database_match"] = self._match_bytes
        rows = [[1.0, fleet.document_bytes, fleet.own_bytes] for fleet in fleets]
        for name in ("database", "worker", "image"):
            sizes = [float(getattr(fleet, f"{name}_bytes")) for fleet in fleets]
            each = least_squares(rows, sizes, [1.0] * len(sizes))
            found |= {f"{name}_{unit}": size for unit, size in zip(SIZED, each, strict=True)}
        return found

    def _as_json(
        self, item: Observation, seconds: Mapping[str, Mapping[str, float]]
    ) -> dict[str, Any]:
        counts, whole = self._counts(item), item.used.cpu_total
        fitted = {
            process: sum(seconds[process].get(unit, 0.0) * counts[unit] for unit in UNITS)
            for process in DEPENDS
        }
        errors = {
            process: relative(fitted[process], item.seconds(process), whole) for process in DEPENDS
        }
        errors["total"] = relative(sum(fitted.values()), whole, whole)
        return {
            "name": item.name,
            "profile": item.profile,
            "nodes": item.nodes,
            "partitions": item.partitions,
            "leases": item.leases,
            "tags": item.tags,
            "state": item.state,
            "seconds": item.used.seconds,
            "cpu_seconds": item.used.cpu_seconds,
            "fitted_seconds": {name: round(value, 4) for name, value in fitted.items()},
            "errors": {name: round(error, 4) for name, error in errors.items()},
            "memory_bytes": item.used.memory_bytes,
        }


# What the size of a node is made of, on disk, in an image and in a worker.
SIZED = ("node", "byte", "own_byte")
MEASURES = (*DEPENDS, "total")


def worst(rows: Sequence[Mapping[str, Any]], measure: str) -> dict[str, Any]:
    row = max(rows, key=lambda item: float(item["errors"][measure]))
    return {"error": row["errors"][measure], "at": row["name"]}


def middle(runs: Sequence[Usage]) -> Usage:
    """The run of which the CPU seconds are the (lower) median."""
    return sorted(runs, key=lambda run: run.cpu_total)[(len(runs) - 1) // 2]


def fleet_json(fleet: Fleet) -> dict[str, float]:
    return {
        "document_bytes": round(fleet.document_bytes, 1),
        "variety": round(fleet.variety, 5),
        "wire_bytes": round(fleet.own_bytes, 1),
        "database_bytes": round(fleet.database_bytes, 1),
        "worker_bytes": round(fleet.worker_bytes, 1),
        "image_bytes": round(fleet.image_bytes, 1),
    }


HOW = {
    "seconds": "CPU seconds by process over rebuilds by one worker, fitted by least squares",
    "search": "an evaluation of a definition that goes through the document: all but the first 8",
    "own_byte": "a byte of those that are left where a batch of documents is compressed",
    "waiting": "the query of a lease's candidates, at two lengths of the queue",
    "fixed_seconds": "the least of a rebuild's time that is not CPU time of any process",
    "wire_cold_own_byte": "1: what is left on the wire is what an own byte is",
    "store_own_byte": "1: a worker keeps batches as they come",
    "wire_partition": "a lease's and a completion's JSON without expressions",
    "wire_match": "an expression's share of both: definition, ids, bitmap",
    "database_byte": "size of node and document with their indexes, per document byte, after "
    "VACUUM; fitted over the profiles, as all that is per node, per byte and per own byte",
    "database_match": "size of match with its indexes, and of one first evaluation's audit row",
    "worker_base": "a worker's and its child's largest resident size before the first lease",
    "worker_byte": "what that grew by in a cold rebuild, per document byte",
    "image_byte": "an image's size, of as many nodes as a partition has, per document byte",
    "profiles": "a node of each profile of the generator, in the mean, as measured",
    "utilisation": "chosen: what a plan leaves free for queues and stragglers",
}


def loaded_nodes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(node_count) FROM partition")
        return int(cursor.fetchone()[0])


def image_bytes(profile: ProfileName, seed: int) -> float:
    """Bytes of the kernel's image for one node of a partition."""
    slots = config.load().partition_slots
    image = base.load("kernel").image(list)
    for slot, node in enumerate(generate(slots, seed, profile)):
        image.put(slot, node.probes)
    return float(image.nbytes) / slots


def candidate_seconds() -> dict[str, float]:
    """CPU seconds that a lease spends on each waiting partition, by API and database."""
    api, database = [], []
    for count in WAITING:
        with transaction.atomic():
            _make_waiting(count)
            for spent, waited in [_look() for _ in range(LOOKS)][1:]:
                api.append((count, spent))
                database.append((count, waited))
            transaction.set_rollback(True)
    return {"api": _slope(api), "database": _slope(database)}


def _make_waiting(count: int) -> None:
    cluster = Cluster.objects.create(name="waiting")
    made = Partition.objects.bulk_create(
        Partition(cluster=cluster, number=n, rev=1, capacity=8, next_slot=0, node_count=0)
        for n in range(count)
    )
    queue.defer_partitions(item.pk for item in made)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE procrastinate_jobs, partition")


def _look() -> tuple[float, float]:
    """Seconds of this process, and of the database as the time that this one waits."""
    cpu, wall = time.process_time(), time.perf_counter()
    sql.rows(
        leases.__file__,
        "candidates",
        {"clusters": None, "holds": [], "overtaken": policy.MAX_OVERTAKEN},
    )
    spent = time.process_time() - cpu
    return spent, max(0.0, time.perf_counter() - wall - spent)


def _slope(points: Sequence[tuple[int, float]]) -> float:
    medians = [
        statistics.median(seconds for count, seconds in points if count == size) for size in WAITING
    ]
    return max(0.0, (medians[1] - medians[0]) / (WAITING[1] - WAITING[0]))


def wire_bytes(slots: int, texts: Sequence[str]) -> dict[str, float]:
    """Bytes of JSON that a partition and a match add to a lease and its completion."""
    uuid = "0" * 36
    lease = messages.LeasedPartition(uuid, 10**6, uuid, 10**4, slots, [])
    result = messages.PartitionResult(uuid, 10**6, 10**4, [], [], 1000, 0.123)
    stale, match = (
        messages.StaleExpression(10**4, 10**4),
        messages.MatchResult(10**4, bitmap.encode(0, slots)),
    )
    definition = messages.Definition("x" * round(statistics.fmean(map(len, texts))), {})
    return {
        "wire_partition": len(messages.dump(lease)) + len(messages.dump(result)),
        "wire_match": sum(len(messages.dump(item)) for item in (stale, match, definition)),
    }


def node_bytes() -> float:
    """Bytes at rest of one node."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM node, document")
        cursor.execute(
            "SELECT (pg_total_relation_size('node') + pg_total_relation_size('document'))::float"
            " / (SELECT count(*) FROM node)"
        )
        return float(cursor.fetchone()[0])


def match_bytes() -> float:
    """Bytes at rest of one match."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM match, match_change")
        cursor.execute(
            "SELECT pg_total_relation_size('match')::float / (SELECT count(*) FROM match)"
            " + pg_total_relation_size('match_change')::float"
            " / greatest(1, (SELECT count(*) FROM match_change))"
        )
        return float(cursor.fetchone()[0])


def parser_defaults() -> dict[str, str]:
    """The worker's options as they are when nobody sets them."""
    return {item.name: item.metadata["default"] for item in fields(Settings)}


class CalibrateBench(Bench):
    name = "calibrate"
    help = "this machine's unit costs, for `manage.py capacity --calibrate`"
    # One for each profile.
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=4_096, help="of each profile")
        parser.add_argument(
            "--tags", type=numbers, default=TAGS, metavar="N,N", help="of a rebuild"
        )
        parser.add_argument(
            "--profile", type=names_of(PROFILES), default=list(PROFILES), metavar="NAME,NAME"
        )
        parser.add_argument("--repetitions", type=int, default=3, help="medians are over these")
        parser.add_argument(
            "--most-error", type=float, default=MAX_ERROR, help="of the fit, at its worst"
        )
        parser.add_argument("--evaluator", help="the workers' --evaluator")
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        if options["nodes"] < SMALL_SLOTS * 4:
            raise BenchError(f"--nodes must be at least {SMALL_SLOTS * 4}")
        bench.check_sizes(options, "nodes", "tags", "repetitions")
        tags = tuple(sorted(set(options["tags"])))
        chosen = CalibrateOptions(
            options["nodes"],
            tags,
            tuple(options["profile"]),
            *(options[name] for name in ("repetitions", "evaluator", "seed", "most_error")),
        )
        return Calibration(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title=f"microseconds of CPU, evaluator {result['evaluator']}")
        table.add_column("unit")
        for process in DEPENDS:
            table.add_column(process, justify="right")
        for unit in UNITS:
            costs = [result["seconds"][process].get(unit, 0.0) * 1e6 for process in DEPENDS]
            table.add_row(unit, *(f"{cost:,.4g}" if cost else "" for cost in costs))
        console.print(table)
        for measure, error in result["fit_error"].items():
            found = result["fit_worst"][measure]
            console.print(
                f"error of the fit, {measure}: {error:.0%} in the median, {found['error']:.0%} at "
                f"worst ({found['at']})"
            )
        for name, fleet in result["profiles"].items():
            console.print(f"a node, {name}: {fleet}")
        console.print(f"mismatches with lxml: {result['mismatches']}")

    def fault(self, result: dict[str, Any]) -> str | None:
        found = result["fit_worst"]["total"]
        if found["error"] > result["most_error"]:
            return (
                f"the fit misses an observation by {found['error']:.0%} ({found['at']}): calibrate "
                "again, with more --nodes or --repetitions, on an idle machine"
            )
        return super().fault(result)
