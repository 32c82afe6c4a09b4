"""The queue of partitions that wait for evaluation: the only code that touches Procrastinate.

A partition with something to evaluate has one waiting job. Its queue name, its `lock` and its
`queueing_lock` are all `partition:<id>`: a worker can ask for what it holds, one worker at a time
evaluates a partition, and a thousand changes make one job. Everything here runs on Django's
connection, in the caller's transaction where there is one. Which worker runs a job, and until when,
say the leases (`tagmill.work.leases`).

Periodic tasks (`tagmill.flows.maintenance`) are jobs of a queue of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import structlog
from asgiref.sync import async_to_sync
from django.db import transaction
from procrastinate.contrib.django import app
from procrastinate.contrib.django.django_connector import DjangoConnector
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Status

from tagmill import locks, sql
from tagmill.config import load
from tagmill.locks import Lock
from tagmill.matches import staleness
from tagmill.work import policy, traces
from tagmill.work.policy import CHANGE, REBUILD, WHOLE, Candidate, Kind

log = structlog.get_logger("tagmill.queue")

TASK = "evaluate_partition"
PERIODIC = "maintenance"
# How soon the thread of the periodic tasks notices that it is to stop.
STOP_SECONDS = 0.25
# Somebody may enqueue between our look and our insert; then we look again.
ENQUEUE_ATTEMPTS = 8


class _Waiting(NamedTuple):
    job: int
    queue: str
    priority: int


class _Candidates(NamedTuple):
    partitions: list[int]
    priorities: list[int]
    clusters: list[int]
    nodes: list[int]


class _Started(NamedTuple):
    partition: int
    job: int


@app.task(name=TASK, queue="partitions")
def evaluate_partition(partition: int) -> None:
    """Never run by Procrastinate's own worker: Tagmill's workers lease it over HTTP."""
    raise RuntimeError(f"partition {partition} is evaluated by `manage.py worker`")


def queue_of(partition: int) -> str:
    return f"partition:{partition}"


# -- making work available -------------------------------------------------------------------------


def defer_partitions(ids: Iterable[int], kind: Kind = REBUILD) -> None:
    """`defer` for one kind of work."""
    defer(dict.fromkeys(ids, kind))


def defer_stale(ids: Iterable[int], delay: int = 0) -> None:
    """Leave with the queue whatever is stale in these partitions."""
    defer(policy.kinds(staleness.stale(sorted(set(ids)))), delay)


def defer(wanted: Mapping[int, Kind], delay: int = 0) -> None:
    """A waiting job for each partition that has none, and a notification to waiting workers. A job
    that waits already is from now on for this, too.

    With `delay`, a new job waits so many seconds before it is leased, or until a change or a
    rebuild is deferred there: it may be evaluated now.

    The last thing that a transaction does, and once: other transactions that defer wait for it from
    here on, in one order. Relies on: the caller holds the partitions, their leases or the fleet.
    """
    if not wanted:
        return
    locks.taking(Lock.JOB)
    for _ in range(ENQUEUE_ATTEMPTS):
        try:
            with transaction.atomic():
                _enqueue(wanted, delay)
                sql.rows(__file__, "notify_work", {"partitions": sorted(wanted)})
                traces.remember(list(wanted))
            return
        except AlreadyEnqueued:
            continue
    # Whoever enqueued it meanwhile has notified the workers; the sweep looks after the rest.
    log.warning("partitions left to the sweep", action="defer", partitions=len(wanted))


def _enqueue(wanted: Mapping[int, Kind], delay: int) -> None:
    by_queue = {queue_of(partition): partition for partition in sorted(wanted)}
    found = sql.named(_Waiting, __file__, "waiting_jobs", {"queues": list(by_queue)})
    waiting = {by_queue[row.queue]: row for row in found}
    raised = {
        row.job: Kind(row.priority) | wanted[partition]
        for partition, row in waiting.items()
        if Kind(row.priority) | wanted[partition] != row.priority
    }
    if raised:
        values = {"jobs": list(raised), "priorities": [int(kind) for kind in raised.values()]}
        sql.run(__file__, "prioritise_jobs", values)
    anew = [row.job for item, row in waiting.items() if wanted[item] & (CHANGE | WHOLE)]
    if anew and not delay:
        sql.run(__file__, "clear_delays", {"jobs": anew})
    later: dict[str, Any] = {"schedule_in": {"seconds": delay}} if delay else {}
    jobs = [
        evaluate_partition.configure(
            queue=name, lock=name, queueing_lock=name, priority=int(wanted[partition]), **later
        ).make_new_job(partition=partition)
        for name, partition in by_queue.items()
        if partition not in waiting
    ]
    if jobs:
        app.job_manager.batch_defer_jobs(jobs=jobs)


# -- taking and ending jobs ------------------------------------------------------------------------


def candidates(
    clusters: list[int] | None, holds: Sequence[int], owns: Collection[int] = ()
) -> list[Candidate]:
    """The waiting jobs of these clusters (None: of all), those that should be leased first first:
    of partitions that the worker owns, and those that were overtaken too often; then of those that
    it holds."""
    values = {
        **{"clusters": clusters, "holds": list(holds), "owns": list(owns)},
        **{"overtaken": policy.MAX_OVERTAKEN},
    }
    (found,) = sql.bound(_Candidates, __file__, "candidates", values)
    return [Candidate(*item) for item in zip(*found, strict=True)]


def fetch(candidates: Sequence[Candidate], wanted: int) -> dict[int, int]:
    """{partition: job} of the jobs that this transaction now runs."""
    jobs: dict[int, int] = {}
    left = list(candidates)
    while left and len(jobs) < wanted:
        tried, left = left[: wanted - len(jobs)], left[wanted - len(jobs) :]
        queues = [queue_of(item.partition) for item in tried]
        jobs |= dict(sql.bound(_Started, __file__, "fetch_jobs", {"queues": queues}))
    return jobs


def succeed(jobs: Sequence[int], *, delete: bool = False) -> None:
    _finish(jobs, Status.SUCCEEDED, delete)


def abort(jobs: Sequence[int]) -> None:
    _finish(jobs, Status.ABORTED)


def _finish(jobs: Sequence[int], status: Status, delete: bool = False) -> None:
    """Jobs that somebody has deleted or finished already are left alone."""
    if jobs:
        values = {"jobs": list(jobs), "status": status.value, "delete": delete}
        sql.rows(__file__, "finish_jobs", values)


# -- housekeeping ----------------------------------------------------------------------------------


def known_partitions() -> set[int]:
    """Partitions that have a job, waiting or running."""
    return set(sql.values(__file__, "known_partitions", {}))


def orphans() -> list[int]:
    """Jobs that run without a lease, locked."""
    return sql.values(__file__, "orphaned_jobs", {})


def cancel_in(ids: Sequence[int]) -> None:
    """Cancel the waiting jobs of partitions that are to be deleted: the last lock that is taken."""
    queues = [queue_of(partition) for partition in ids]
    for job, _, _ in locks.query(Lock.JOB, __file__, "waiting_jobs", {"queues": queues}):
        app.job_manager.cancel_job_by_id(job)


def delete_finished_jobs() -> None:
    """Delete old finished jobs, and the maintenance jobs that a killed server left running."""

    async def end_stalled() -> None:
        for job in await app.job_manager.get_stalled_jobs():
            if job.id is not None and job.task_name != TASK:
                await app.job_manager.finish_job_by_id_async(job.id, Status.FAILED, delete_job=True)

    async_to_sync(end_stalled)()
    async_to_sync(app.job_manager.delete_old_jobs)(
        nb_hours=load().finished_job_hours,
        include_failed=True,
        include_cancelled=True,
        include_aborted=True,
    )


def job_counts() -> dict[str, int]:
    """Jobs in the queue by status; those of maintenance are not counted."""
    found = dict(sql.rows(__file__, "job_counts", {"task": TASK}))
    return {status.value: int(found.get(status.value, 0)) for status in Status}


# -- periodic tasks --------------------------------------------------------------------------------


def register_periodic(name: str, cron: str, run: Callable[[int], None]) -> None:
    """`cron` has seconds, if any, as its sixth and last field (croniter)."""
    # No `lock`: the job of a server that was killed would hold it for ever, and two at a time are
    # harmless.
    task = app.task(name=name, queue=PERIODIC, queueing_lock=name)(run)
    app.periodic(cron=cron)(task)


async def run_periodic(stop: threading.Event) -> None:
    """Run the periodic tasks until `stop` is set, or until the database is gone."""
    # Django's connections are for threads; Procrastinate's worker has its own, asynchronous.
    connector = cast(DjangoConnector, app.connector).get_worker_connector()
    async with app.with_connector(connector).open_async() as running:
        work = asyncio.create_task(
            running.run_worker_async(
                queues=[PERIODIC],
                name=PERIODIC,
                concurrency=1,
                install_signal_handlers=False,
                listen_notify=False,
                fetch_job_polling_interval=1.0,
                delete_jobs="successful",
            )
        )
        # Looked at now and then: asyncio.run waits for its threads, and one that waited for `stop`
        # would outlive a worker that failed.
        while not (stop.is_set() or work.done()):
            await asyncio.wait({work}, timeout=STOP_SECONDS)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
