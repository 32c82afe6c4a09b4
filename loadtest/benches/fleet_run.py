"""A run of `bench fleet`: the ramp, what feeds it, and whether everything was right at the end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from django.db import connection, transaction
from django.db.models import F
from rich.progress import Progress

from fixtures import loader
from fixtures.tags import SAMPLE_TAGS
from loadtest import bench
from loadtest.bench import BenchError, Session
from loadtest.benches.saturation import conclusion, summary
from loadtest.planner import costs
from loadtest.planner.demand import Demand
from loadtest.rig import processes
from loadtest.rig.behaviour import Behaviour, Report, holds
from loadtest.rig.generator import ANSWER_SECONDS, Generator
from loadtest.rig.simulated import ENDED
from loadtest.rig.stack import Stack, free_port, running
from tagmill.fleet.models import Node, Partition
from tagmill.matches.models import EffectiveMatch
from tagmill.tags import tags
from tagmill.work import queue, workers
from tagmill.work.policy import CHANGE
from tagmill_wire import bitmap

# Enough that a lease finds work while the partitions of all workers are under evaluation.
PARTITIONS_PER_WORKER = 2
FEWEST_PARTITIONS = 16
FEED_SECONDS = 0.05
SETTLE_SECONDS = 1.0
# A step that adds less than this share of throughput, though it doubled the workers, saturates.
MIN_GROWTH = 0.1
# Where workers vanish, so that their partitions come back within the run. Heartbeats this frequent
# cost the server something, so elsewhere they are as rare as in operation.
SHORT_LEASES = {"lease_seconds": 4, "heartbeat_seconds": 1}
QUIET_SECONDS = 120.0


@dataclass(frozen=True)
class FleetOptions:
    """`evaluation` None: what a real worker needs for one partition, by the committed costs."""

    workers: int = 200
    nodes: int = 8
    tags: int = len(SAMPLE_TAGS)
    step_seconds: float = 5.0
    generators: int = 1
    evaluation: float | None = None
    fetch: float = 0.0
    fail: float = 0.0
    late: float = 0.0
    duplicate: float = 0.0
    seed: int = 1

    @property
    def partitions(self) -> int:
        return max(FEWEST_PARTITIONS, PARTITIONS_PER_WORKER * self.workers)

    def steps(self) -> list[int]:
        sizes = []
        size = 1
        while size < self.workers:
            sizes.append(size)
            size *= 2
        return [*sizes, self.workers]


class FleetRun:
    """One run on the scratch database."""

    def __init__(self, chosen: FleetOptions, session: Session) -> None:
        self.options = chosen
        self._session = session
        self._evaluation = chosen.evaluation
        if self._evaluation is None:
            unit = costs.load()
            # Its tags are the demo's, all of which look up.
            demand = Demand(unit.partition_slots, chosen.tags, 1.0, searching=0.0)
            self._evaluation = unit.worker_seconds(demand)
        self._steps: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        chosen = self.options
        self._say(
            f"preparing {chosen.partitions} partitions of {chosen.nodes} nodes, {chosen.tags} tags"
        )
        with bench.settings(**(SHORT_LEASES if chosen.fail else {})):
            token = self._prepare()
            stack = Stack(f"127.0.0.1:{free_port()}", token, self._session.log)
            with running(stack), bench.progress(self._session.console) as progress:
                stack.start_server()
                with self._generators(stack, token) as generators:
                    self._ramp(stack, generators, progress)
                    quiet = self._quiesce(stack, generators)
        return self._result(quiet)

    # -- preparation -----------------------------------------------------------------------------

    def _prepare(self) -> str:
        """Partitions of few nodes but the usual capacity: bitmaps cost what they always cost."""
        with bench.settings(partition_slots=max(8, -(-self.options.nodes // 8) * 8)):
            loader.load(self.options.partitions * self.options.nodes, seed=self.options.seed)
        Partition.objects.update(capacity=costs.load().partition_slots)
        for number in range(self.options.tags):
            sample = SAMPLE_TAGS[number % len(SAMPLE_TAGS)]
            # Another text is another expression; nobody evaluates it here.
            text = sample.definition + " " * (number // len(SAMPLE_TAGS))
            tags.create(f"fleet-{number}", definition=text)
        return workers.issue_token("fleet", "all")[1]

    @contextlib.contextmanager
    def _generators(self, stack: Stack, token: str) -> Iterator[list[Generator]]:
        chosen, (host, _, port) = self.options, stack.listen.rpartition(":")
        started: list[Generator] = []
        try:
            for number in range(chosen.generators):
                behaviour = Behaviour(
                    host=host,
                    port=int(port),
                    token=token,
                    seed=chosen.seed,
                    evaluation=self._evaluation or 0.0,
                    fetch=chosen.fetch,
                    fail=chosen.fail,
                    late=chosen.late,
                    duplicate=chosen.duplicate,
                    process=number,
                )
                started.append(Generator(behaviour, self._session.log))
            yield started
        finally:
            for generator in started:
                generator.stop()

    # -- the ramp --------------------------------------------------------------------------------

    def _ramp(self, stack: Stack, generators: Sequence[Generator], progress: Progress) -> None:
        task = progress.add_task("ramp", total=len(self.options.steps()))
        for size in self.options.steps():
            # Saturated, only the full fleet is still of interest: what its leases take.
            if size < self.options.workers and self._is_saturated():
                progress.advance(task)
                continue
            progress.update(task, description=f"{size} workers")
            self._resize(stack, generators, size)
            self._steps.append(self._step(stack, generators, size))
            progress.advance(task)

    def _resize(self, stack: Stack, generators: Sequence[Generator], size: int) -> None:
        count = len(generators)
        for n, generator in enumerate(generators):
            generator.say({"workers": size * (n + 1) // count - size * n // count})
        deadline = time.monotonic() + ANSWER_SECONDS
        for generator in generators:
            while generator.answer(FEED_SECONDS) is None:
                stack.check()
                self._feed()
                if time.monotonic() > deadline:
                    raise BenchError(f"{size} workers did not register in {ANSWER_SECONDS:g} s")
        self._feed_for(min(SETTLE_SECONDS, self.options.step_seconds))
        self._reports(generators)

    def _step(self, stack: Stack, generators: Sequence[Generator], size: int) -> dict[str, Any]:
        roots = stack.pids() | {f"generator-{n}": item.pid for n, item in enumerate(generators)}
        if (postmaster := processes.postmaster()) is not None:
            roots["database"] = postmaster
        before, began = processes.cpu_seconds(roots), time.perf_counter()
        driver = time.process_time()
        psutil.cpu_percent()
        self._feed_for(self.options.step_seconds)
        busy = psutil.cpu_percent() / 100
        seconds = time.perf_counter() - began
        used = processes.difference(processes.cpu_seconds(roots), before)
        used["driver"] = round(time.process_time() - driver, 3)
        stack.check()
        cores = os.cpu_count() or 1
        reports = self._reports(generators)
        return summary(size, seconds, used=used, busy=busy, cores=cores, reports=reports)

    def _reports(self, generators: Sequence[Generator]) -> list[Report]:
        for generator in generators:
            generator.say({"report": True})
        found = [generator.answer() for generator in generators]
        return [Report(**answer) for answer in found if answer is not None]

    def _feed_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._feed()
            time.sleep(min(FEED_SECONDS, left))

    @transaction.atomic
    def _feed(self) -> None:
        """Make every partition stale that has no job: a node of each has changed."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM partition WHERE NOT EXISTS (SELECT FROM procrastinate_jobs job"
                " WHERE job.lock = 'partition:' || partition.id AND status IN ('todo', 'doing'))"
                " ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"
            )
            idle = [row[0] for row in cursor.fetchall()]
            cursor.execute("UPDATE partition SET rev = rev + 1 WHERE id = ANY(%s)", [idle])
            cursor.execute(
                "UPDATE node SET rev = p.rev FROM partition p WHERE p.id = ANY(%s)"
                " AND node.partition_id = p.id AND node.slot = p.rev %% p.next_slot",
                [idle],
            )
        queue.defer_partitions(idle, CHANGE)

    def _is_saturated(self) -> bool:
        if len(self._steps) < 2:  # noqa: PLR2004 - one step has nothing to compare with
            return False
        last, this = (step["completions_per_second"] for step in self._steps[-2:])
        grown = self._steps[-1]["workers"] / self._steps[-2]["workers"] - 1
        return bool(this < last * (1 + MIN_GROWTH * grown))

    # -- the end ---------------------------------------------------------------------------------

    def _quiesce(self, stack: Stack, generators: Sequence[Generator]) -> dict[str, Any]:
        """Feed no more; then every match must become fresh, and be what the workers sent."""
        for generator in generators:
            generator.say({"drain": True})
            generator.answer()
        began = time.monotonic()
        while stale := self._stale():
            if time.monotonic() - began > QUIET_SECONDS:
                break
            stack.check()
            for generator in generators:
                generator.check()
            time.sleep(FEED_SECONDS)
        return {
            "seconds": round(time.monotonic() - began, 3),
            "stale_matches": stale,
            "wrong_matches": self._wrong(),
            "reports": [asdict(item) for item in self._reports(generators)],
        }

    def _stale(self) -> int:
        wanted = Partition.objects.count() * self.options.tags
        return wanted - EffectiveMatch.objects.filter(rev=F("partition__rev")).count()

    def _wrong(self) -> int:
        nodes: dict[int, dict[int, int]] = {}
        for partition, slot, rev in Node.objects.values_list("partition_id", "slot", "rev"):
            nodes.setdefault(partition, {})[slot] = rev
        found = EffectiveMatch.objects.values_list("expression_id", "partition_id", "members")
        return sum(
            bitmap.from_bytes(members)
            != bitmap.from_slots(
                slot
                for slot, rev in nodes[partition].items()
                if holds(self.options.seed, expression, partition, slot, rev)
            )
            for expression, partition, members in found.iterator()
        )

    def _result(self, quiet: dict[str, Any]) -> dict[str, Any]:
        ended = [Report(**item) for item in quiet.pop("reports")]
        totals = {
            name: sum(step[name] for step in self._steps)
            + sum(getattr(report, name) for report in ended)
            for name in ("vanished", "late", "duplicates")
        }
        counted = [*(step["errors"] for step in self._steps), *(item.errors for item in ended)]
        result = conclusion(self._steps, os.cpu_count() or 1)
        return {
            "bench": "fleet",
            "machine": bench.machine(),
            "plan": asdict(self.options),
            "partitions": self.options.partitions,
            "evaluation_seconds": round(self._evaluation or 0.0, 4),
            **result,
            "steps": self._steps,
            "failures": totals,
            "crashes": sorted({kind for errors in counted for kind in errors if ENDED in kind}),
            "end": quiet,
            "mismatches": quiet["stale_matches"] + quiet["wrong_matches"],
        }

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")
