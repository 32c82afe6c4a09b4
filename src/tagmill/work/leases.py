"""Leases of partitions, and the jobs behind them: the only code that touches Procrastinate's queue.

A partition with something to evaluate has one waiting job. Its queue name, its `lock` and its
`queueing_lock` are all `partition:<id>`: a worker can ask for what it holds, one worker at a time
evaluates a partition, and a thousand changes make one job. Everything here runs on Django's
connection, in the caller's transaction where there is one.

job  todo ──lease──► doing ──complete──► succeeded
      ▲                │ give up, reap
      └──── a new one ─┴──► aborted

What makes the queue's limits harmless: a result is accepted by compare-and-set, whoever sends it; a
job is finished only while its lease row stands; what is lost altogether, the sweep finds.
"""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Status

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import WorkerGone
from tagmill.fleet import incarnation, vocabularies
from tagmill.fleet.models import Cluster
from tagmill.locks import Lock
from tagmill.matches import staleness
from tagmill.matches.models import Expression
from tagmill.work import workers
from tagmill.work.models import Lease, Worker
from tagmill_wire.messages import Definition, LeaseAnswer, LeasedPartition, StaleExpression

log = structlog.get_logger("tagmill.leases")

TASK = "evaluate_partition"
# The quota for previews: after each second that a worker spends on previews alone it takes none for
# this many seconds while other work waits, so that previews take at most a quarter of its time.
# PREVIEW_SECONDS are charged for each preview besides: its request, its answer and its jobs.
ORDINARY_SHARE = 3
PREVIEW_SECONDS = 0.1
# The quota for changes: after each second that a worker spends on changes alone it takes none for
# this many seconds while rebuilds wait, so that changes take at most half of what previews leave.
REBUILD_SHARE = 1
# A job that was overtaken by so many times the jobs that wait counts as held: what no worker holds
# is not left behind by what is held and made again and again.
MAX_OVERTAKEN = 8
# An ordinary lease takes one preview along for so many expressions of tags.
RIDERS = 4
# An ordinary lease of many partitions, each to be fetched, would keep previews of them waiting.
MAX_ORDINARY = 16
# A lease and its completion cost as much as so many partitions that are held: fewer are not worth
# a round trip each.
MIN_HELD = 4
# Partitions that one line of the log names.
MAX_LOGGED = 16
# Somebody may enqueue between our look and our insert; then we look again.
ENQUEUE_ATTEMPTS = 8


class Kind(enum.IntFlag):
    """What a waiting job is for: any of these; without one, for vocabularies alone. The value is
    its priority in Procrastinate. A lease is for one of them, or for vocabularies."""

    LEARNING = 0
    REBUILD = 1
    CHANGE = 2
    PREVIEW = 4


LEARNING, REBUILD, CHANGE, PREVIEW = Kind.LEARNING, Kind.REBUILD, Kind.CHANGE, Kind.PREVIEW


class Candidate(NamedTuple):
    """A row of the query `candidates`."""

    queue: str
    partition: int
    priority: int
    cluster: int


class Ended(NamedTuple):
    """A lease that stood until now."""

    partition: int
    rev: int
    leased_at: datetime
    kind: Kind


@app.task(name=TASK, queue="partitions")
def evaluate_partition(partition: int) -> None:
    """Never run by Procrastinate's own worker: Tagmill's workers lease it over HTTP."""
    raise RuntimeError(f"partition {partition} is evaluated by `manage.py worker`")


def queue(partition: int) -> str:
    return f"partition:{partition}"


# -- making work available -------------------------------------------------------------------------


def defer_partitions(ids: Iterable[int], kind: Kind = REBUILD) -> None:
    """`defer` for one kind of work."""
    defer(dict.fromkeys(ids, kind))


def defer_stale(ids: Iterable[int], delay: int = 0) -> None:
    """Leave with the queue whatever is stale in these partitions."""
    defer(kinds(staleness.stale(sorted(set(ids)))), delay)


def kinds(stale: Iterable[staleness.Stale]) -> dict[int, Kind]:
    """What each partition waits for: an expression with a base needs only what has changed."""
    found: dict[int, Kind] = {}
    for item in stale:
        one = PREVIEW if item.is_preview else REBUILD if item.base_rev is None else CHANGE
        found[item.partition] = found.get(item.partition, LEARNING) | one
    return found


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
            return
        except AlreadyEnqueued:
            continue
    # Whoever enqueued it meanwhile has notified the workers; the sweep looks after the rest.
    log.warning("partitions left to the sweep", action="defer", partitions=len(wanted))


def _enqueue(wanted: Mapping[int, Kind], delay: int) -> None:
    by_queue = {queue(partition): partition for partition in sorted(wanted)}
    waiting = sql.rows(__file__, "waiting_jobs", {"queues": list(by_queue)})
    raised = {
        job: Kind(priority) | wanted[by_queue[name]]
        for job, name, priority in waiting
        if Kind(priority) | wanted[by_queue[name]] != priority
    }
    if raised:
        values = {"jobs": list(raised), "priorities": [int(kind) for kind in raised.values()]}
        sql.run(__file__, "prioritise_jobs", values)
    anew = [job for job, name, _ in waiting if wanted[by_queue[name]] & (CHANGE | REBUILD)]
    if anew and not delay:
        sql.run(__file__, "clear_delays", {"jobs": anew})
    known = {name for _, name, _ in waiting}
    later: dict[str, Any] = {"schedule_in": {"seconds": delay}} if delay else {}
    jobs = [
        evaluate_partition.configure(
            queue=name, lock=name, queueing_lock=name, priority=int(wanted[partition]), **later
        ).make_new_job(partition=partition)
        for name, partition in by_queue.items()
        if name not in known
    ]
    if jobs:
        app.job_manager.batch_defer_jobs(jobs=jobs)


# -- leasing ---------------------------------------------------------------------------------------


def lease(worker: Worker, max_partitions: int, holds: Sequence[int]) -> LeaseAnswer:
    """Up to `max_partitions` partitions with what is stale in each: those that the worker holds
    first, and no more than its share, so that waiting workers get some. May be none.

    Previews come first, then changes, then rebuilds; but while the later ones wait, no more of a
    worker's time goes into the earlier ones than ORDINARY_SHARE and REBUILD_SHARE leave. A lease
    for previews names nothing else, one for changes what needs only the nodes that changed.

    Raises WorkerGone."""
    with transaction.atomic():
        locks.fleet()
        spent = _beat(worker)
        parameters = {
            "clusters": _clusters(worker),
            "holds": list(holds),
            "overtaken": MAX_OVERTAKEN,
        }
        while found := sql.rows(__file__, "candidates", parameters):
            candidates, kind = _chosen([Candidate(*row) for row in found], spent)
            most = max_partitions if kind == PREVIEW else min(max_partitions, MAX_ORDINARY)
            jobs = _fetch(candidates, min(most, _share(candidates, kind, holds)))
            answer = replace(_granted(worker, jobs, kind), incarnation=spent.incarnation)
            # Jobs whose work is done already do not count; others took the rest of them.
            if answer.leases or not jobs:
                return answer
        return LeaseAnswer([], {})


def _chosen(found: list[Candidate], spent: SpentQuotas) -> tuple[list[Candidate], Kind]:
    """The jobs to choose from, the first ones first; and what they are taken for."""
    of = {
        kind: [item for item in found if Kind(item.priority) & kind]
        for kind in (PREVIEW, CHANGE, REBUILD)
    }
    if of[PREVIEW] and not (spent.previews and (of[CHANGE] or of[REBUILD])):
        return of[PREVIEW], PREVIEW
    if of[CHANGE] and not (spent.changes and of[REBUILD]):
        return of[CHANGE], CHANGE
    # Learning waits until there is nothing else.
    return (of[REBUILD], REBUILD) if of[REBUILD] else (found, LEARNING)


def _share(candidates: list[Candidate], kind: Kind, holds: Sequence[int]) -> int:
    """How many of the candidates one worker is given, so that none waits for another in the end:
    half of its part when they must be fetched, for which times differ; all of it when it holds them
    and the round trip is what costs most."""
    part = len(candidates) / max(1, workers.live({item.cluster for item in candidates}))
    if kind == PREVIEW:
        return math.ceil(part)
    held = len({item.partition for item in candidates} & set(holds))
    return max(math.ceil(part / 2), min(held, max(MIN_HELD, math.ceil(part))))


def _fetch(candidates: list[Candidate], wanted: int) -> dict[int, int]:
    """{partition: job} of the jobs that this transaction now runs."""
    jobs: dict[int, int] = {}
    left = list(candidates)
    while left and len(jobs) < wanted:
        tried, left = left[: wanted - len(jobs)], left[wanted - len(jobs) :]
        queues = [item.queue for item in tried]
        jobs |= dict(sql.rows(__file__, "fetch_jobs", {"queues": queues}))
    return jobs


def _granted(worker: Worker, jobs: dict[int, int], kind: Kind) -> LeaseAnswer:
    stale: dict[int, list[staleness.Stale]] = {}
    for item in staleness.stale(list(jobs)):
        stale.setdefault(item.partition, []).append(item)
    learning = vocabularies.after(set(jobs) - stale.keys()) if kind == LEARNING else {}
    _finish(
        [job for key, job in jobs.items() if key not in stale and key not in learning],
        Status.SUCCEEDED,
    )
    named = {partition: _named(items, kind) for partition, items in stale.items()}
    named |= {partition: ([], LEARNING) for partition in learning}
    leased = _grant(worker, {key: job for key, job in jobs.items() if key in named}, named)
    wanted = {item.expression for items, _ in named.values() for item in items}
    definitions = {
        str(key): Definition(text, namespaces)
        for key, text, namespaces in Expression.objects.filter(id__in=wanted).values_list(
            "id", "text", "namespaces"
        )
    }
    asked = [replace(item, vocabulary_rev=learning.get(item.partition)) for item in leased]
    return LeaseAnswer(asked, definitions, load().evaluation_seconds)


def _named(stale: list[staleness.Stale], kind: Kind) -> tuple[list[staleness.Stale], Kind]:
    """The part of what is stale in a partition that its lease names, and what the lease is for."""
    previews = [item for item in stale if item.is_preview]
    others = [item for item in stale if not item.is_preview]
    if previews and (kind == PREVIEW or not others):
        return previews, PREVIEW
    changed = [item for item in stale if item.base_rev is not None]
    if kind == CHANGE and changed:
        # One changed node costs itself alone: what needs every node waits its turn.
        return changed, CHANGE
    # Without a base the whole partition is due anyway, and the change only makes it come sooner.
    return others + previews[: max(1, len(others) // RIDERS)], CHANGE if kind == CHANGE else REBUILD


def _grant(
    worker: Worker,
    jobs: dict[int, int],
    named: dict[int, tuple[list[staleness.Stale], Kind]],
) -> list[LeasedPartition]:
    """A lease for each job, in their order."""
    parameters = {
        "worker": worker.id,
        "partitions": list(jobs),
        "jobs": list(jobs.values()),
        "kinds": [int(named[partition][1]) for partition in jobs],
        "seconds": load().lease_seconds,
    }
    granted = sql.rows(__file__, "grant_leases", parameters) if jobs else []
    return [
        LeasedPartition(
            lease=str(made),
            partition=partition,
            cluster=str(cluster),
            rev=rev,
            capacity=capacity,
            expressions=[
                StaleExpression(item.expression, item.base_rev) for item in named[partition][0]
            ],
        )
        for made, partition, cluster, rev, capacity in granted
    ]


def _clusters(worker: Worker) -> list[int] | None:
    """None: all of them."""
    token = worker.token
    if token.all_clusters:
        return None
    return list(Cluster.objects.filter(worker_tokens=token).values_list("id", flat=True))


# -- keeping and ending ----------------------------------------------------------------------------


def heartbeat(worker: Worker, leases: Sequence[str]) -> list[str]:
    """Extend the worker's leases that stand; those that do not. Raises WorkerGone."""
    with transaction.atomic():
        _beat(worker)
        standing = Lease.objects.filter(worker=worker, uuid__in=leases, deadline__gt=Now())
        kept = {str(row.uuid) for row in locks.rows(standing)}
        deadline = Now() + timedelta(seconds=load().lease_seconds)
        Lease.objects.filter(uuid__in=kept).update(deadline=deadline)
    return [item for item in leases if str(uuid.UUID(item)) not in kept]


class SpentQuotas(NamedTuple):
    """Whether a worker has spent its quota of time for previews, and its quota for changes.
    `incarnation` is the incarnation of the database in which the worker registered."""

    previews: bool
    changes: bool
    incarnation: str


def _beat(worker: Worker) -> SpentQuotas:
    """Raises WorkerGone, also for a worker of another incarnation."""
    values = {"worker": worker.id, "preview": int(PREVIEW), "change": int(CHANGE)}
    found = locks.query(Lock.WORKER, __file__, "beat", values)
    if not found:
        raise WorkerGone("no such worker, or of another incarnation: register again")
    return SpentQuotas(*found[0])


def finish(worker: Worker, leases: Iterable[str]) -> dict[str, Ended]:
    """End the leases of these that still stand, and their jobs with them.

    In the caller's transaction, which has locked the partitions; a lease that is over stays over.
    """
    standing = Lease.objects.filter(worker=worker, uuid__in=set(leases))
    rows = locks.rows(standing)
    if not rows:
        return {}
    kept = [row.job_id for row in rows if row.kind != PREVIEW]
    _finish(kept, Status.SUCCEEDED)
    # Somebody who types makes more of them than anybody wants to look at.
    _finish([row.job_id for row in rows if row.kind == PREVIEW], Status.SUCCEEDED, delete=True)
    Lease.objects.filter(uuid__in=[row.uuid for row in rows]).delete()
    return {
        str(row.uuid): Ended(row.partition_id, row.rev, row.leased_at, Kind(row.kind))
        for row in rows
    }


def charge_quota(worker: Worker, kind: Kind, began: datetime, count: int) -> None:
    """Charge the time since `began`, in which the worker held leases of `kind` for `count`
    expressions. Call it after the transaction that finished the leases: a worker's row is locked
    before its leases."""
    values = {
        "worker": worker.id,
        "began": began,
        "beside": count * PREVIEW_SECONDS if kind == PREVIEW else 0.0,
        "ordinary": ORDINARY_SHARE if kind == PREVIEW else 0,
        "rebuilds": REBUILD_SHARE if kind == CHANGE else 0,
    }
    sql.run(__file__, "charge_quota", values)


def give_up(worker: Worker, leases: Sequence[str], reason: str, delay: int = 0) -> None:
    """Give leases back: their partitions can be leased again at once, or, where the worker could
    not evaluate them, after `delay` seconds, or when they change. One that is locked, by a
    heartbeat for example, is waited for: who gives back is not asked again."""
    with transaction.atomic():
        theirs = locks.rows(Lease.objects.filter(worker=worker, uuid__in=leases))
        rows = _release(theirs, delay)
    say = log.warning if delay else log.info
    say(
        "leases given up",
        action="give_up",
        worker=worker.name,
        leases=len(rows),
        partitions=rows[:MAX_LOGGED],
        reason=reason,
        delay=delay,
    )


def give_back_unnamed(worker: Worker, named: Sequence[str]) -> None:
    """End the worker's leases that it does not name when it asks for more: the answer that granted
    them was lost, in an outage of the database after the commit for example, and nobody would
    evaluate their partitions before the deadline."""
    lost = Lease.objects.filter(worker=worker).exclude(uuid__in=named)
    uuids = [str(uuid) for uuid in lost.values_list("uuid", flat=True)]
    if uuids:
        give_up(worker, uuids, "the answer did not arrive")


def reap() -> int:
    """Take back the leases whose deadline has passed, by the database's clock, and those of workers
    of another incarnation, whom nobody answers any more; how many."""
    others = Worker.objects.exclude(incarnation=incarnation.current())
    with transaction.atomic():
        expired = Lease.objects.filter(Q(deadline__lte=Now()) | Q(worker__in=others))
        # One that is being completed, or extended, is left for the next time.
        count = len(_release(locks.rows(expired, skip_locked=True)))
    if count:
        log.warning("leases expired", action="reap", leases=count)
    return count


def _release(rows: Sequence[Lease], delay: int = 0) -> list[int]:
    """End leases, which are locked, without a result: a new job waits in place of each. Their
    partitions."""
    _finish([row.job_id for row in rows], Status.ABORTED)
    Lease.objects.filter(uuid__in=[row.uuid for row in rows]).delete()
    # For everything: what the lease did not name has no job either.
    partitions = [row.partition_id for row in rows]
    defer_stale(partitions, delay)
    return partitions


def _finish(jobs: Sequence[int], status: Status, delete: bool = False) -> None:
    """Jobs that somebody has deleted or finished already are left alone."""
    if jobs:
        values = {"jobs": list(jobs), "status": status.value, "delete": delete}
        sql.rows(__file__, "finish_jobs", values)


# -- housekeeping ----------------------------------------------------------------------------------


def repair() -> int:
    """Find what the queue forgot: stale partitions without a job, and jobs that run without a
    lease. How many there were."""
    with transaction.atomic():
        locks.fleet()
        orphans = [row[0] for row in sql.rows(__file__, "orphaned_jobs", {})]
        _finish(orphans, Status.ABORTED)
        known = {row[0] for row in sql.rows(__file__, "known_partitions", {})}
        lost = [item for item in staleness.stale_partitions() if item not in known]
        defer_stale(lost)
    if orphans or lost:
        log.warning("work found", action="sweep", orphans=len(orphans), partitions=len(lost))
    return len(orphans) + len(lost)


def learn() -> int:
    """Leave the vocabularies that lag behind to whoever has nothing else to do; how many."""
    with transaction.atomic():
        locks.fleet()
        known = {row[0] for row in sql.rows(__file__, "known_partitions", {})}
        lagging = [item for item in vocabularies.lagging() if item not in known]
        defer_partitions(lagging, LEARNING)
    return len(lagging)


def end_in(ids: Sequence[int]) -> None:
    """End the leases in partitions that are to be deleted. Relies on: the partitions are locked."""
    leases = locks.rows(Lease.objects.filter(partition__in=ids))
    _finish([row.job_id for row in leases], Status.ABORTED)
    Lease.objects.filter(uuid__in=[row.uuid for row in leases]).delete()


def cancel_in(ids: Sequence[int]) -> None:
    """Cancel the waiting jobs of partitions that are to be deleted: the last lock that is taken."""
    queues = [queue(partition) for partition in ids]
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
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT status::text, count(*) FROM procrastinate_jobs WHERE task_name = %s GROUP BY 1",
            [TASK],
        )
        found = dict(cursor.fetchall())
    return {status.value: int(found.get(status.value, 0)) for status in Status}
