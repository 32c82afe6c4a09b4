"""What each process counts, reported to the database: the figures of all servers in one place."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from api.cache.bodies import Bodies
from api.cache.counts import Tally
from tagmill import sql

log = structlog.get_logger("tagmill.cache")

# The app has one file of queries, in its own folder.
QUERIES = str(Path(__file__).resolve().parent)
REPORT_SECONDS = 2.0
# A process that counts nothing new says so often that it lives.
ALIVE_SECONDS = 60.0
# Without a word for so long, a process has ended.
FORGET_SECONDS = 300.0

Columns = dict[str, list[Any]]


class Stats(NamedTuple):
    """One keyspace, over all processes that live."""

    keyspace: str
    processes: int
    lookups: int
    hits: int
    misses: int
    coalesced: int
    evicted_bytes: int
    oversize: int
    builds: int
    build_seconds: float
    entries: int
    bytes: int


def stats() -> list[Stats]:
    """At most REPORT_SECONDS old."""
    return sql.named(Stats, QUERIES, "body_cache_stats", {})


class Reports:
    """On the reactor thread; the database is called in `threads`."""

    def __init__(self, clock: Any, threads: Any, bodies: Bodies) -> None:
        self._clock = clock
        self._threads = threads
        self._bodies = bodies
        self._process = f"{socket.gethostname()[:48]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._last: Columns = {}
        self._reported_at = float("-inf")
        self._loop = LoopingCall(self._report)
        self._loop.clock = clock

    def start(self) -> None:
        self._loop.start(REPORT_SECONDS, now=False)

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def _report(self) -> Any:
        found = self._columns()
        now = self._clock.seconds()
        if not found["keyspace"] or (
            found == self._last and now - self._reported_at < ALIVE_SECONDS
        ):
            return None
        self._last, self._reported_at = found, now
        return self._threads.call(_store, self._process, found).addErrback(_unreported)

    def _columns(self) -> Columns:
        store, counted = self._bodies.store, self._bodies.counts.by_keyspace
        found: Columns = {"keyspace": sorted(counted)}
        for field in fields(Tally):
            found[field.name] = [asdict(counted[name])[field.name] for name in found["keyspace"]]
        found["entries"] = [store.entries[name] for name in found["keyspace"]]
        found["bytes"] = [store.sizes[name] for name in found["keyspace"]]
        return found


def _store(process: str, columns: Columns) -> None:
    sql.run(QUERIES, "body_cache_report", {"process": process, **columns})
    sql.run(QUERIES, "body_cache_forget", {"seconds": FORGET_SECONDS})


def _unreported(failure: Failure) -> None:
    """The next one says it all."""
    log.warning("counts of the body cache were not reported", error=failure.getErrorMessage())
