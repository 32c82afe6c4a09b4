"""`bench calibrate`: this machine's unit costs, for `manage.py capacity --calibrate FILE`.

Rebuilds of two fleets (large partitions alone, then with many small ones), with few and many
tags, cold and warm, in few and many leases, by one worker. The CPU seconds of each process are
fitted as a sum of unit costs, none below zero, by least squares of relative errors. What every
lease spends on each waiting partition is too little to be seen there, and measured by itself.
"""

from __future__ import annotations

import itertools
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction
from rich.console import Console
from rich.table import Table

from fixtures import loader
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session, numbers
from loadtest.planner.costs import UNITS, units
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.definitions import definitions
from loadtest.rig.rig import Rig, Usage, peaks
from tagmill import config, sql
from tagmill.fleet.models import Cluster, Partition
from tagmill.work import leases, policy, queue
from tagmill_wire import bitmap, messages
from tagmill_worker.settings import Settings

# What each process may depend on; a worker knows nothing of matches' rows, nor the API of nodes
# that it does not send.
DEPENDS = {
    "worker": ("lease", "partition", "match", "node", "evaluation", "cold_node"),
    "api": ("rebuild", "lease", "partition", "match", "cold_node"),
    "database": ("rebuild", "lease", "partition", "match", "cold_node"),
}
PROCESS_NAMES = {"worker": "worker", "api": "server", "database": "database"}
SMALL_SLOTS = 64
FEW, SOME, MANY = 1, 8, 64  # tags
# Leases of as many partitions as the queue gives, and of one: what a lease costs by itself.
MAX_PARTITIONS = 64
# The step in which a process's CPU time is counted.
MIN_SECONDS = 0.01
# The candidates of a lease: large enough that a scan shows, and taken away again.
WAITING = (250, 2_000)
LOOKS = 9
SWEEPS_OF_THE_FIT = 20_000
# What a plan leaves free. Above these, queues grow faster than the formula's tolerance.
UTILISATION = {"worker": 0.9, "api": 0.7, "database": 0.7}


@dataclass(frozen=True)
class Observation:
    """`most`: partitions of a lease at most; `slots`: of each partition, by which fleets differ."""

    counts: dict[str, float]
    used: Usage
    state: str
    tags: int
    nodes: int
    partitions: int
    most: int
    slots: int


class Calibration:
    """One run on the scratch database."""

    def __init__(
        self, nodes: int, tags: list[int], seed: int, evaluator: str | None, session: Session
    ) -> None:
        self._nodes = nodes
        self._seed = seed
        self._options = ["--evaluator", evaluator] if evaluator else []
        self._session = session
        self._tags = tags
        self._definitions = definitions(max(tags))
        self._seen: list[Observation] = []
        self._mismatches = 0
        self._evaluator = evaluator or "auto"
        self._bases: list[int] = []

    def run(self) -> dict[str, Any]:
        slots = config.load().partition_slots
        with Rig(self._session.url, self._session.log) as rig:
            rig.create_tags(self._definitions)
            for size, count in ((slots, self._nodes), (SMALL_SLOTS, self._nodes // 4)):
                self._say(f"{count:,} more nodes in partitions of {size}")
                with bench.settings(partition_slots=size):
                    loader.load(count, seed=self._seed)
                self._fleet(rig, size)
        self._say("candidates of a lease")
        return self._result(slots, candidate_seconds())

    def _fleet(self, rig: Rig, slots: int) -> None:
        reference = ask_lxml(self._definitions)
        with rig.stack(1, self._options) as first:
            first.settle()
        names = list(self._definitions)
        with bench.progress(self._session.console) as progress:
            task = progress.add_task("rebuilds", total=2 * len(self._tags))
            for tags, most in itertools.product(self._tags, (MAX_PARTITIONS, 1)):
                options = [*self._options, "--max-partitions", str(most)]
                with rig.stack(1, options) as running:
                    self._bases.append(peaks(running.stack.pids())["worker"])
                    for state, used in (
                        ("cold", running.measure(names[:tags])),
                        ("warm", running.measure_warm(names[:tags])),
                    ):
                        self._note(state, used, tags, most, slots)
                    row = running.api.get("workers/")["results"][0]
                    self._evaluator = str(row["evaluator"])
                progress.advance(task)
        self._mismatches += mismatches(reference)

    def _note(self, state: str, used: Usage, tags: int, most: int, slots: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*), sum(node_count) FROM partition")
            partitions, nodes = cursor.fetchone()
        leases = used.round_trips.get("lease", 1)
        # `waiting` is measured by itself.
        counts = units(nodes, tags, partitions, leases, 0.0, is_cold=state == "cold")
        self._seen.append(Observation(counts, used, state, tags, nodes, partitions, most, slots))

    def _result(self, slots: int, waiting: Mapping[str, float]) -> dict[str, Any]:
        seconds = {process: self._fit(process) for process in DEPENDS}
        for process, cost in waiting.items():
            seconds[process]["waiting"] = cost
        defaults = parser_defaults()
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        return {
            "name": f"bench calibrate, {today}, {bench.machine()['processor']}",
            "bench": "calibrate",
            "machine": bench.machine(),
            "evaluator": self._evaluator,
            "partition_slots": slots,
            "batch_nodes": min(config.load().batch_nodes, int(defaults["batch_nodes"])),
            "overlap": True,
            "fixed_seconds": round(self._fixed(), 4),
            "seconds": {
                process: {unit: float(f"{cost:.4g}") for unit, cost in table.items() if cost}
                for process, table in seconds.items()
            },
            "bytes": {name: round(value, 1) for name, value in self._bytes(slots).items()},
            "utilisation": UTILISATION,
            "how": HOW,
            "fit_error": {process: self._fit_error(process, seconds) for process in DEPENDS},
            "observations": [self._as_json(item) for item in self._seen],
            "mismatches": self._mismatches,
        }

    def _fit(self, process: str) -> dict[str, float]:
        names = DEPENDS[process]
        rows = [[item.counts[unit] for unit in names] for item in self._seen]
        spent = [_seconds(item, process) for item in self._seen]
        return dict(zip(names, least_squares(rows, spent), strict=True))

    def _fit_error(self, process: str, seconds: Mapping[str, Mapping[str, float]]) -> float:
        """The median relative error of the fit over its own observations."""
        errors = []
        for item in self._seen:
            fitted = sum(seconds[process].get(unit, 0.0) * item.counts[unit] for unit in UNITS)
            spent = max(MIN_SECONDS, _seconds(item, process))
            errors.append(abs(fitted - spent) / spent)
        return round(statistics.median(errors), 3)

    def _fixed(self) -> float:
        """The part of the smallest rebuild in which nobody computes."""
        small = min(self._seen, key=lambda item: item.used.seconds)
        return max(0.0, small.used.seconds - small.used.cpu_total)

    def _bytes(self, slots: int) -> dict[str, float]:
        cold = [item for item in self._seen if item.state == "cold"]
        chosen, base = ordinary(self._seen, slots), statistics.median(self._bases)
        held = chosen.used.memory_bytes["worker"]
        return {
            "wire_cold_node": statistics.median(
                item.used.batch_bytes / item.nodes for item in cold
            ),
            **wire_bytes(slots, list(self._definitions.values())),
            **database_bytes(),
            "worker_base": base,
            "worker_node": max(0.0, held - base) / chosen.nodes,
        }

    def _as_json(self, item: Observation) -> dict[str, Any]:
        return {
            "nodes": item.nodes,
            "partitions": item.partitions,
            "leases": item.counts["lease"],
            "tags": item.tags,
            "state": item.state,
            "seconds": item.used.seconds,
            "cpu_seconds": item.used.cpu_seconds,
            "memory_bytes": item.used.memory_bytes,
        }

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")


def ordinary(seen: Sequence[Observation], slots: int) -> Observation:
    """A cold rebuild as plans have it: some tags, leases as large as the queue gives, on the first
    fleet, of which the worker holds every node."""
    wanted = ("cold", SOME, MAX_PARTITIONS, slots)
    return next(item for item in seen if (item.state, item.tags, item.most, item.slots) == wanted)


HOW = {
    "seconds": "CPU seconds by process over rebuilds by one worker, fitted by least squares",
    "waiting": "the query of a lease's candidates, at two lengths of the queue",
    "fixed_seconds": "the smallest rebuild's time, less all CPU seconds spent in it",
    "wire_cold_node": "bytes of batches sent, compressed, per node",
    "wire_partition": "a lease's and a completion's JSON without expressions",
    "wire_match": "an expression's share of both: definition, ids, bitmap",
    "database_node": "size of node and document with their indexes, per node, after VACUUM",
    "database_match": "size of match with its indexes, and of one first evaluation's audit row",
    "worker_base": "a worker's and its child's largest resident size before the first lease",
    "worker_node": "what that grew by in a cold rebuild, per node",
    "utilisation": "chosen: what a plan leaves free for queues and stragglers",
}


def _seconds(item: Observation, process: str) -> float:
    name = PROCESS_NAMES[process]
    if name not in item.used.cpu_seconds:
        raise BenchError(
            "the database's CPU seconds are not to be seen: calibrate with the embedded PostgreSQL"
        )
    return item.used.cpu_seconds[name]


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """x >= 0 with the least sum of ((row . x - value) / value)^2, by coordinate descent."""
    weights = [1 / max(MIN_SECONDS, value) for value in values]
    scaled = [[cell * weight for cell in row] for row, weight in zip(rows, weights, strict=True)]
    wanted = [value * weight for value, weight in zip(values, weights, strict=True)]
    # Columns of length 1, so that units of very different sizes converge alike.
    norms = [sum(row[n] ** 2 for row in scaled) ** 0.5 or 1.0 for n in range(len(rows[0]))]
    columns = [[row[n] / norm for row in scaled] for n, norm in enumerate(norms)]
    found = [0.0] * len(columns)
    left = list(wanted)
    for _ in range(SWEEPS_OF_THE_FIT):
        largest = 0.0
        for n, column in enumerate(columns):
            step = sum(cell * rest for cell, rest in zip(column, left, strict=True))
            step = max(step, -found[n])
            found[n] += step
            left = [rest - step * cell for cell, rest in zip(column, left, strict=True)]
            largest = max(largest, abs(step))
        if largest < 1e-12:  # noqa: PLR2004 - far below any cost
            break
    return [value / norm for value, norm in zip(found, norms, strict=True)]


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


def database_bytes() -> dict[str, float]:
    """Bytes at rest of one node and of one match."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM node, document, match, match_change")
        cursor.execute(
            "SELECT (pg_total_relation_size('node') + pg_total_relation_size('document'))::float"
            " / (SELECT count(*) FROM node),"
            " pg_total_relation_size('match')::float / (SELECT count(*) FROM match)"
            " + pg_total_relation_size('match_change')::float"
            " / greatest(1, (SELECT count(*) FROM match_change))"
        )
        node, match = cursor.fetchone()
    return {"database_node": node, "database_match": match}


def parser_defaults() -> dict[str, str]:
    """The worker's options as they are when nobody sets them."""
    return {item.name: item.metadata["default"] for item in fields(Settings)}


class CalibrateBench(Bench):
    name = "calibrate"
    help = "this machine's unit costs, for `manage.py capacity --calibrate`"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=8_192)
        parser.add_argument(
            "--tags", type=numbers, default=[FEW, SOME, MANY], metavar="N,N", help="of a rebuild"
        )
        parser.add_argument("--evaluator", help="the workers' --evaluator")
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        if options["nodes"] < SMALL_SLOTS * 4:
            raise BenchError(f"--nodes must be at least {SMALL_SLOTS * 4}")
        if SOME not in options["tags"]:
            raise BenchError(f"--tags must have {SOME}: memory is measured with these")
        nodes, tags, seed = options["nodes"], options["tags"], options["seed"]
        return Calibration(nodes, tags, seed, options["evaluator"], session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title=f"microseconds of CPU, evaluator {result['evaluator']}")
        table.add_column("unit")
        for process in DEPENDS:
            table.add_column(process, justify="right")
        for unit in UNITS:
            costs = [result["seconds"][process].get(unit, 0.0) * 1e6 for process in DEPENDS]
            table.add_row(unit, *(f"{cost:,.2f}" if cost else "" for cost in costs))
        console.print(table)
        console.print(f"median error of the fit: {result['fit_error']}")
        console.print(f"bytes: {result['bytes']}")
        console.print(f"mismatches with lxml: {result['mismatches']}")
