"""Rebuilds by one worker, and the unit costs that their CPU seconds are fitted to.

Cold and warm, with one tag to hundreds, of fleets of each profile of the generator, whose documents
differ in size and in what is a node's own. Of the first profile also in few and many leases, and in
large and in small partitions. The CPU seconds of each process are fitted as a sum of unit costs,
none below zero, by least squares of relative errors; the fit must come close to every observation,
not to most of them. What every lease spends on each waiting partition is too little to be seen
there, and measured by itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fixtures import loader
from fixtures.generate import ProfileName
from loadtest import bench
from loadtest.bench import Session
from loadtest.benches.fit import (
    DEPENDS,
    MEASURES,
    Fit,
    Fleet,
    Observation,
    fleet_json,
    worst,
)
from loadtest.benches.measures import (
    candidate_seconds,
    image_bytes,
    loaded_nodes,
    match_bytes,
    node_bytes,
    wire_bytes,
)
from loadtest.planner.fitting import medians
from loadtest.references import documents
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.definitions import definitions
from loadtest.rig.rig import Rig, Usage, peaks
from loadtest.rig.scratch import scratch_database
from tagmill import config
from tagmill.fleet.models import Partition
from tagmill_worker.settings import Settings

SMALL_SLOTS = 64
# lxml is asked about a sample of the nodes, with every definition.
MAX_EVALUATIONS = 200_000
# Leases of as many partitions as the queue gives, and of one: what a lease costs by itself.
MAX_PARTITIONS = 64
# The fit may be off by this much at its worst observation.
MAX_ERROR = 0.25
# What a plan leaves free. Above these, queues grow faster than the formula's tolerance.
UTILISATION = {"worker": 0.9, "api": 0.7, "database": 0.7}


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
        self._fit = Fit(self._seen, self._fleets)
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
        seconds = {process: self._fit.seconds(process) for process in DEPENDS}
        for process, cost in self._waiting.items():
            seconds[process]["waiting"] = cost
        rows = [self._fit.row(item, seconds) for item in self._seen]
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        return {
            "name": f"bench calibrate, {today}, {bench.machine()['processor']}",
            "bench": "calibrate",
            "machine": bench.machine(),
            "evaluator": self._evaluator,
            "partition_slots": config.load().partition_slots,
            "batch_nodes": min(config.load().batch_nodes, int(parser_defaults()["batch_nodes"])),
            "overlap": True,
            "fixed_seconds": round(self._fit.fixed(), 4),
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

    def _bytes(self) -> dict[str, float]:
        base = statistics.median(self._bases)
        found = {"wire_cold_own_byte": 1.0, "store_own_byte": 1.0, "worker_base": base}
        slots = config.load().partition_slots
        found |= wire_bytes(slots, list(self._definitions.values()))
        found["database_match"] = self._match_bytes
        return found | self._fit.sizes()


def middle(runs: Sequence[Usage]) -> Usage:
    """The run of which the CPU seconds are the (lower) median."""
    return sorted(runs, key=lambda run: run.cpu_total)[(len(runs) - 1) // 2]


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


def parser_defaults() -> dict[str, str]:
    """The worker's options as they are when nobody sets them."""
    return {item.name: item.metadata["default"] for item in fields(Settings)}
