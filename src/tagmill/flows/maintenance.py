"""Periodic tasks, run by Procrastinate inside every API server, unless its settings turn them off.

Procrastinate starts each once an interval, however many servers there are.

| task | every | what it does |
|---|---|---|
| reap | 2 s | takes back leases whose deadline has passed |
| place | 5 s | gives what dead workers owned, and new partitions, to others that live |
| sweep | 10 s | finds work that the queue forgot, publishes what a crash left behind, forgets
|         |       | failed attempts that were followed by results |
| compact | 10 s | moves nodes out of partitions that are full of deleted nodes, and drops those
|         |       | that have no other
| pack | 10 s | trains dictionaries for documents, and packs anew what was stored before them
| sample | 20 s | notes how the fleet is, for charts
| learn | 15 s | leaves vocabularies that lag behind to idle workers |
| collect | 1 min | ends expired previews, deletes expressions and matches that nothing refers to,
|         |       | forgets silent workers |
| settle | 1 min | puts totals in the place of the targets of rebuilds that are over |
| clean | 10 min | deletes finished jobs, old rebuilds, old events of the audit, old changes and
|         |       | expired sessions |
| images | 10 min | deletes shared images that nobody will read |
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models.functions import Now

from tagmill import locks, sql
from tagmill.audit import trail
from tagmill.config import load
from tagmill.database import MAINTENANCE_SECONDS
from tagmill.fleet import images as shared
from tagmill.fleet import incarnation, packing
from tagmill.flows import compaction
from tagmill.locks import Lock
from tagmill.matches import expression_sets
from tagmill.tags import changes, previews, publishing, rebuilds
from tagmill.tags.models import Rebuild
from tagmill.work import leases, membership, queue, samples, traces, workers

log = structlog.get_logger("tagmill.maintenance")

# They are bounded by how long they are kept (docs/settings.md), not by the fleet.
GROWING = (
    "assignment_change",
    "audit_event",
    "expression",
    "fleet_sample",
    "match_change",
    "past_partition",
    "procrastinate_jobs",
    "rebuild",
    "rebuild_target",
    "shared_image",
    "vocabulary",
)
RESTART_SECONDS = 2.0


def _periodic(cron: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register the function as a periodic task; it stays callable as it is."""

    def register(work: Callable[[], object]) -> Callable[[], object]:
        @functools.wraps(work)
        def run(timestamp: int) -> None:
            bounded(work)()

        queue.register_periodic(work.__name__, cron, run)
        return work

    return register


def bounded(work: Callable[[], object]) -> Callable[[], None]:
    """`work` on a connection whose statements have the time that periodic tasks need."""

    def run() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET statement_timeout = '{MAINTENANCE_SECONDS}s'")
            work()
        finally:
            # The thread may never run again; its connection must not stay behind.
            connection.close()

    return run


@_periodic("* * * * * */2")
def reap() -> int:
    """How many leases had expired."""
    return leases.reap()


@_periodic("* * * * * */5")
def place() -> bool:
    """Whether anything has another owner."""
    return membership.refresh()


@_periodic("* * * * * */10")
def sweep() -> None:
    """What a crash, or a transaction that could not see another, left undone."""
    incarnation.current()
    leases.repair()
    forget_failures()
    with transaction.atomic():
        publishing.publish()
        previews.finish_reached()
        rebuilds.finish_reached()


@_periodic("* * * * * 7,17,27,37,47,57")
def pack() -> int:
    """How many documents were packed anew."""
    return packing.run(load().pack_seconds)


@_periodic("* * * * * 9,19,29,39,49,59")
def compact() -> int:
    """How many nodes moved."""
    return compaction.run()


@_periodic("* * * * * 3,23,43")
def sample() -> int:
    """How many samples were taken: none where another server was before."""
    return samples.take()


@_periodic("* * * * * 5,20,35,50")
def learn() -> int:
    """How many partitions have something to learn: their vocabularies, when there is time."""
    return leases.learn()


@_periodic("* * * * *")
def collect() -> None:
    workers.prune()
    previews.forget_expired()
    collect_expressions()
    expression_sets.forget()
    traces.forget()


@_periodic("* * * * * 45")
def settle() -> int:
    """How many targets were deleted."""
    return rebuilds.settle()


@_periodic("*/10 * * * * 30")
def clean() -> None:
    queue.delete_finished_jobs()
    trail.forget()
    changes.forget()
    sessions = import_module(settings.SESSION_ENGINE)
    sessions.SessionStore.clear_expired()
    age = timedelta(days=load().rebuild_days)
    with transaction.atomic():
        locks.fleet()
        locks.housekeeping()
        old = Rebuild.objects.filter(finished_at__lt=Now() - age)
        ids = [rebuild.id for rebuild in locks.rows(old, to_delete=True)]
        Rebuild.objects.filter(id__in=ids).delete()


@_periodic("5-59/10 * * * * 15")
def images() -> int:
    """How many were deleted."""
    return shared.sweep()


def collect_expressions() -> int:
    """Delete expressions, with their matches, that no tag and no live preview has named for a
    while. Those that a tag had keep their text while the audit trail names them: it explains the
    trail. How many were found."""
    hours = load().expression_hours
    with transaction.atomic():
        locks.fleet()
        locks.housekeeping()
        sql.run(__file__, "note_use", {"hours": hours})
        rows = locks.query(Lock.EXPRESSION, __file__, "unreferenced", {"hours": hours})
        found = [expression for (expression,) in rows]
        if found:
            locks.query(Lock.MATCH, __file__, "lock_matches_of", {"expressions": found})
            sql.run(__file__, "collect_expressions", {"expressions": found})
    return len(found)


def forget_failures() -> None:
    """Start counting again for expressions that failed somewhere and then succeeded there: two
    accidents of one expression, months apart, are not a runaway."""
    sql.run(__file__, "forget_failures", {})


def run_forever(stop: threading.Event) -> None:
    """Run the periodic tasks in this thread until `stop` is set, through any outage."""
    while not stop.is_set():
        try:
            asyncio.run(_run(stop))
        except Exception as error:
            if not stop.is_set():
                log.warning("maintenance interrupted", action="retry", error=str(error).strip())
        stop.wait(RESTART_SECONDS)


async def _run(stop: threading.Event) -> None:
    # Periodic jobs are deferred over the Django connection of asgiref's thread, which nobody else
    # closes: one that broke in an outage would break every later attempt.
    close = sync_to_async(connections.close_all)
    await close()
    try:
        await queue.run_periodic(stop)
    finally:
        await close()


class _Growth(NamedTuple):
    table: str
    rows: float


def growing_tables() -> list[tuple[str, float]]:
    """(table, about how many rows) of those that grow until their rows are old enough."""
    found = sql.named(_Growth, __file__, "estimated_rows", {"tables": list(GROWING)})
    return [(growth.table, float(growth.rows)) for growth in found]
