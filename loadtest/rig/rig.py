"""One scratch database, a server and workers on it, and rebuilds measured on every side."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import psycopg
from django.contrib.auth.models import User
from django.contrib.postgres.functions import TransactionNow

from api import tokens
from api.roles import Role
from loadtest.rig import processes
from loadtest.rig.http import Api
from loadtest.rig.stack import Stack, StackError, free_port, running
from tagmill import config
from tagmill.fleet import packing
from tagmill.tags import tags
from tagmill.work import workers
from tagmill.work.models import Worker

PATIENCE_SECONDS = 900
MAX_SETTLING = 3
WARM_REBUILDS = 5
WARM_SECONDS = 5.0
# A notification that was missed delays the next look by this much.
LOOK_SECONDS = 0.25

_PENDING = "SELECT count(*) FROM tag WHERE pending_expression_id IS NOT NULL"
_STALE = """
SELECT count(*)
  FROM partition
 CROSS JOIN tag
  LEFT JOIN effective_match m
         ON m.partition_id = partition.id AND m.expression_id = tag.expression_id
 WHERE tag.expression_id IS NOT NULL AND m.rev IS DISTINCT FROM partition.rev
"""


@dataclass(frozen=True)
class Usage:
    """What one rebuild used. `cpu_seconds` and `memory_bytes` (peaks) by process; `round_trips`
    by route; `batch_bytes` as sent. `others`: the share of the machine that processes other than
    these had meanwhile."""

    seconds: float
    cpu_seconds: dict[str, float]
    round_trips: dict[str, int]
    batch_bytes: int
    memory_bytes: dict[str, int] = field(default_factory=dict)
    others: float = 0.0

    @property
    def cpu_total(self) -> float:
        return sum(self.cpu_seconds.values())

    @property
    def trips_total(self) -> int:
        return sum(self.round_trips.values())


class Rig:
    """Close it; what it started is stopped by the contexts that started it."""

    def __init__(self, url: str, log: Path) -> None:
        self.log = log
        self._listener = psycopg.connect(url, autocommit=True)
        self._listener.execute("LISTEN tagmill_progress")
        user = User.objects.create_superuser("bench")
        self.api_token = tokens.issue(user, Role.ADMIN, days=0)[1]
        self._worker_token = workers.issue_token("bench", "all")[1]

    def close(self) -> None:
        self._listener.close()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def stack(
        self, workers: int, options: Sequence[str] = (), server: Sequence[str] = ()
    ) -> Iterator[Running]:
        """A new server and new workers, which wait for work: nothing is held or cached. `options`
        are the workers', `server` the server's."""
        stack = Stack(f"127.0.0.1:{free_port()}", self._worker_token, self.log)
        forget_workers()
        with running(stack):
            # Periodic tasks would fall into one measurement and not into another.
            stack.start_server("--no-maintenance", *server)
            # Cold is cold: nothing is warmed before it is measured.
            stack.start_workers(workers, "--offered", "0", *options)
            self.wait(lambda: stack.parked_polls() >= workers, stack)
            api = Api(stack.url, self.api_token)
            try:
                yield Running(self, stack, api)
            finally:
                api.close()

    def create_tags(self, definitions: Mapping[str, str]) -> None:
        for name, text in definitions.items():
            tags.create(name, definition=text)

    def tidy(self) -> None:
        """What the server and PostgreSQL would do by themselves after a load, in the midst of a
        measurement: documents are packed, and tables vacuumed."""
        packing.run_all()
        self._listener.execute("VACUUM (ANALYZE)")

    def wait(self, condition: Callable[[], bool], stack: Stack) -> None:
        """Until `condition` holds, looking again after each commit that made progress."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            stack.check()
            if time.monotonic() > deadline:
                raise StackError(f"no end after {PATIENCE_SECONDS} s")
            for _ in self._listener.notifies(timeout=LOOK_SECONDS, stop_after=1):
                pass

    def scalar(self, statement: str, *parameters: Any) -> Any:
        row = self.row(statement, *parameters)
        return row[0] if row else None

    def row(self, statement: str, *parameters: Any) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._listener.execute(statement, parameters).fetchone()
        return found


class Running:
    """A started stack."""

    def __init__(self, rig: Rig, stack: Stack, api: Api) -> None:
        self.rig = rig
        self.stack = stack
        self.api = api

    def settle(self) -> None:
        """Until every tag is published and every match of it is fresh."""
        self.rig.wait(
            lambda: self.rig.scalar(_PENDING) == 0 and self.rig.scalar(_STALE) == 0, self.stack
        )

    def rebuild(self, names: Sequence[str]) -> float:
        """Seconds from the REST call to the moment after the last commit."""
        began = time.perf_counter()
        rebuild = self.api.post("rebuilds/", {"tags": list(names)})["uuid"]
        statement = "SELECT state FROM rebuild WHERE uuid = %s"
        self.rig.wait(lambda: self.rig.scalar(statement, rebuild) != "running", self.stack)
        state = self.rig.scalar(statement, rebuild)
        if state != "complete":
            raise StackError(f"the rebuild ended as {state}")
        return time.perf_counter() - began

    def measure(self, names: Sequence[str], times: int = 1) -> Usage:
        """One rebuild, or the mean of several (of their times the median): CPU time is counted in
        steps of 10 ms, which is more than some processes need for a warm one."""
        roots = self._roots()
        before, counted = processes.cpu_seconds(roots), self._counters()
        began, busy = time.perf_counter(), processes.busy_seconds()
        seconds = [self.rebuild(names) for _ in range(times)]
        busy, lasted = processes.busy_seconds() - busy, time.perf_counter() - began
        after, now = processes.cpu_seconds(roots), self._counters()
        gone = {name: round((now[name] - counted.get(name, 0)) / times) for name in now}
        batch_bytes = gone.pop("batch_bytes", 0)
        cpu = processes.difference(after, before)
        return Usage(
            seconds=round(statistics.median(seconds), 4),
            cpu_seconds={name: round(spent / times, 4) for name, spent in cpu.items()},
            round_trips={name: count for name, count in gone.items() if count},
            batch_bytes=batch_bytes,
            memory_bytes=peaks(self.stack.pids()),
            others=max(0.0, busy - sum(cpu.values())) / (lasted * (os.cpu_count() or 1)),
        )

    def measure_warm(self, names: Sequence[str]) -> Usage:
        """Rebuilds in which no batch is sent: a worker may first be given what another one holds.
        What is still sent after a few belongs to the warm state."""
        for _ in range(MAX_SETTLING):
            settling = self.measure(names)
            if not settling.batch_bytes:
                break
        # Long ones are counted well enough in the steps of CPU time.
        enough = math.ceil(WARM_SECONDS / max(settling.cpu_total, settling.seconds))
        return self.measure(names, min(WARM_REBUILDS, enough))

    def cpu_seconds(self) -> dict[str, float]:
        """So far, by process: `server`, `worker`, and `database` where it is the embedded one."""
        return processes.cpu_seconds(self._roots())

    def sent_bytes(self) -> float:
        """Bytes of batches that workers were sent so far."""
        return self._counters().get("batch_bytes", 0.0)

    def _roots(self) -> dict[str, int]:
        roots = self.stack.pids()
        postmaster = processes.postmaster()
        return roots if postmaster is None else roots | {"database": postmaster}

    def _counters(self) -> dict[str, float]:
        """Requests of workers by route, and bytes of batches, so far."""
        found: dict[str, float] = {}
        with urlopen(f"{self.stack.url}/metrics", timeout=10) as answer:  # noqa: S310 - our URL
            for line in answer.read().decode().splitlines():
                if line.startswith("tagmill_batch_bytes_sum"):
                    found["batch_bytes"] = float(line.split()[-1])
                elif line.startswith("tagmill_http_requests_total{"):
                    route = line.partition('route="')[2].partition('"')[0]
                    if route in {"lease", "batch", "workers"}:
                        found[route] = found.get(route, 0.0) + float(line.split()[-1])
        return found


def forget_workers() -> None:
    """Workers that were stopped count among those who share the work until a lease's time has
    passed: leases would be smaller than those of a stack alone."""
    lease = timedelta(seconds=config.load().lease_seconds)
    Worker.objects.update(last_heartbeat=TransactionNow() - lease)


def peaks(roots: Mapping[str, int]) -> dict[str, int]:
    """The largest resident size that each process has had, its children added, in bytes; of
    several (`worker-1`, `worker-2`) the largest."""
    found: dict[str, int] = {}
    for name, pid in roots.items():
        group = name.partition("-")[0]
        try:
            family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        found[group] = max(found.get(group, 0), sum(_peak(process.pid) for process in family))
    return found


def _peak(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
