"""`bench fleet`: simulated workers against one API server until it saturates.

The driver keeps every partition stale (it raises their revs, as uploads would), so that workers
only wait where the system is too slow. Each step doubles the workers. The model is Fleet's
`osquery-perf`: a ramp, probabilities of failure, one seed.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
from django.db import connection, transaction
from django.db.models import F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fixtures import loader
from fixtures.tags import SAMPLE_TAGS
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session
from loadtest.benches.saturation import conclusion, summary
from loadtest.planner import costs
from loadtest.planner.demand import Demand
from loadtest.rig import processes
from loadtest.rig.simulated import ENDED, Behaviour, Report, plausible
from loadtest.rig.stack import ROOT, Stack, end_with_parent, free_port, running
from tagmill.fleet.models import Partition
from tagmill.matches.models import EffectiveMatch
from tagmill.tags import tags
from tagmill.work import queue, workers

# Enough that a lease finds work while the partitions of all workers are under evaluation.
PARTITIONS_PER_WORKER = 2
FEWEST_PARTITIONS = 16
FEED_SECONDS = 0.05
SETTLE_SECONDS = 1.0
# A step that adds less than this share of throughput, though it doubled the workers, saturates.
MIN_GROWTH = 0.1
# What an idle machine's other processes may use of a core before it is worth a word.
OTHERS_CORES = 0.3
# Where workers vanish, so that their partitions come back within the run. Heartbeats this frequent
# cost the server something, so elsewhere they are as rare as in operation.
SHORT_LEASES = {"lease_seconds": 4, "heartbeat_seconds": 1}
ANSWER_SECONDS = 60.0
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


class Generator:
    """One process of simulated workers."""

    def __init__(self, behaviour: Behaviour, log: Path) -> None:
        self._log = log / f"generator-{behaviour.process}.log"
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "loadtest.rig.simulated"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no threads here yet
            )
        self.pid = self._process.pid
        self._rest = b""
        self.say(asdict(behaviour))

    def check(self) -> None:
        """Raises BenchError when the process has ended, with the end of what it printed."""
        if self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise BenchError("a load generator ended: " + " / ".join(lines[-5:]))

    def say(self, message: dict[str, Any]) -> None:
        self.check()
        if self._process.stdin is None:
            raise BenchError("a load generator has no input")
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
        """The next line, or None when there is none within that time."""
        deadline = time.monotonic() + seconds
        output = self._process.stdout
        while b"\n" not in self._rest:
            left = max(0.0, deadline - time.monotonic())
            if output is None or not select.select([output], [], [], left)[0]:
                return None
            data = os.read(output.fileno(), 1 << 16)
            if not data:
                self._process.wait()
                self.check()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(orjson.loads(line))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # A pipe to a dead process may refuse its last bytes.
                with contextlib.suppress(OSError):
                    pipe.close()


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
        """Make every partition stale that has no job, as an upload of one node would."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM partition WHERE NOT EXISTS (SELECT FROM procrastinate_jobs job"
                " WHERE job.lock = 'partition:' || partition.id AND status IN ('todo', 'doing'))"
                " ORDER BY id FOR UPDATE SKIP LOCKED"
            )
            idle = [row[0] for row in cursor.fetchall()]
        Partition.objects.filter(id__in=idle).update(rev=F("rev") + 1)
        queue.defer_partitions(idle)

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
        wrong = 0
        rows = EffectiveMatch.objects.select_related("partition")
        for match in rows.iterator():
            part = match.partition
            expected = plausible(
                self.options.seed, match.expression_id, part.id, match.rev, part.capacity
            )
            expected &= (1 << part.next_slot) - 1
            wrong += int.from_bytes(match.members, "little") != expected
        return wrong

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


class FleetBench(Bench):
    name = "fleet"
    help = "simulated workers against one API server until it saturates"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--workers", type=int, default=200, help="the ramp's end")
        parser.add_argument("--tags", type=int, default=FleetOptions.tags)
        parser.add_argument(
            "--nodes", type=int, default=FleetOptions.nodes, help="nodes of one partition"
        )
        parser.add_argument("--seconds", type=float, default=5.0, help="length of one step")
        parser.add_argument("--processes", type=int, default=1, help="load generators")
        parser.add_argument(
            "--evaluation", type=float, help="seconds that a worker evaluates one partition"
        )
        for share, text in (
            ("fetch", "leases that fetch the whole partition"),
            ("fail", "leases whose worker vanishes"),
            ("late", "results that come after their lease ended"),
            ("duplicate", "results sent twice"),
        ):
            parser.add_argument(f"--{share}", type=float, default=0.0, help=f"share of {text}")
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        if min(options[name] for name in ("workers", "tags", "nodes", "processes")) < 1:
            raise BenchError("--workers, --tags, --nodes and --processes must be positive")
        chosen = FleetOptions(
            workers=options["workers"],
            nodes=options["nodes"],
            tags=options["tags"],
            step_seconds=options["seconds"],
            generators=min(options["processes"], options["workers"]),
            evaluation=options["evaluation"],
            seed=options["seed"],
            **{name: options[name] for name in ("fetch", "fail", "late", "duplicate")},
        )
        return FleetRun(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        seconds = result["evaluation_seconds"]
        table = Table(title=f"workers that evaluate a partition in {seconds:.3f} s")
        for column in (
            "workers",
            "partitions/s",
            "lease p50 ms",
            "p95 ms",
            "complete p95 ms",
            "cores: API",
            "database",
            "generator",
            "errors",
        ):
            table.add_column(column, justify="right")
        for step in result["steps"]:
            used = step["cores"]
            table.add_row(
                str(step["workers"]),
                f"{step['completions_per_second']:,.1f}",
                f"{step['lease_p50_ms']:.1f}",
                f"{step['lease_p95_ms']:.1f}",
                f"{step['complete_p95_ms']:.1f}",
                f"{used.get('server', 0):.2f}",
                f"{used.get('database', 0):.2f}",
                f"{used.get('generator', 0):.2f}",
                str(sum(step["errors"].values())),
            )
        console.print(table)
        console.print(
            f"one API core feeds {result['workers_per_api_core']:.1f} workers; lease p95 "
            f"{result['lease_p95_ms']:.1f} ms; bottleneck: {result['bottleneck']}"
        )
        others = max(step["other_cores"] for step in result["steps"])
        if others > OTHERS_CORES:
            console.print(
                f"Other processes used up to {others:.1f} cores: the figures are a floor."
            )
        if result["bottleneck"] == "load_generator":
            console.print("The load generator was full, not the system: the figures are a floor.")

    def fault(self, result: dict[str, Any]) -> str | None:
        end = result["end"]
        if result["crashes"]:
            return "; ".join(result["crashes"])
        if end["stale_matches"]:
            return f"{end['stale_matches']} matches were still stale after {end['seconds']} s"
        if end["wrong_matches"]:
            return f"{end['wrong_matches']} matches are not what the workers sent"
        return None
