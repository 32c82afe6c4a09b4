"""Leases of partitions: which worker evaluates what, and until when.

Behind each lease a job runs (`tagmill.work.queue`); who is leased how much of what, says
`tagmill.work.policy`. Everything here runs on Django's connection, in the caller's transaction
where there is one.

job  todo ──lease──► doing ──complete──► succeeded
      ▲                │ give up, reap
      └──── a new one ─┴──► aborted

What makes the queue's limits harmless: a result is accepted by compare-and-set, whoever sends it; a
job is finished only while its lease row stands; what is lost altogether, the sweep finds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import WorkerGone
from tagmill.fleet import changes, incarnation, vocabularies
from tagmill.locks import Lock
from tagmill.matches import expression_sets, expressions, staleness
from tagmill.matches.expression_sets import ExpressionSet
from tagmill.work import membership, naming, policy, queue
from tagmill.work.models import Lease, Worker
from tagmill.work.policy import (
    CHANGE,
    DEFINITION,
    LEARNING,
    PREVIEW,
    WHOLE,
    Candidate,
    Kind,
    Speed,
    SpentQuotas,
)
from tagmill.work.workers import Asking, Caller
from tagmill_wire.messages import (
    Definition,
    Done,
    LeaseAnswer,
    LeasedPartition,
    OfSet,
    StaleExpression,
)

log = structlog.get_logger("tagmill.leases")

# The kinds of work that have quotas.
_KINDS = {"preview": int(PREVIEW), "change": int(CHANGE), "definition": int(DEFINITION)}
GONE = "no such worker, or of another incarnation: register again"
# Changed nodes of a partition that are counted: so many are evaluated by themselves.
MAX_COUNTED = 256
# Partitions that one line of the log names.
MAX_LOGGED = 16


class _Leased(NamedTuple):
    lease: uuid.UUID
    partition: int
    cluster: uuid.UUID
    rev: int
    capacity: int


class Ended(NamedTuple):
    """A lease that stood until now."""

    partition: int
    rev: int
    leased_at: datetime
    kind: Kind


# -- leasing ---------------------------------------------------------------------------------------


class Granted(NamedTuple):
    """`clusters`: those of the leases in `answer`; `owns`: the partitions that the worker is
    preferred for, as of `epoch`."""

    answer: LeaseAnswer
    clusters: frozenset[int]
    owns: frozenset[int] = frozenset()
    epoch: int = 0


class Charges(NamedTuple):
    """Since when a worker had the leases of each kind that it has completed (None: it had none),
    and for how many expressions those for previews."""

    previews: datetime | None = None
    changes: datetime | None = None
    definitions: datetime | None = None
    previewed: int = 0

    def values(self) -> dict[str, Any]:
        """As the queries take them."""
        return {
            "previews_began": self.previews,
            "changes_began": self.changes,
            "definitions_began": self.definitions,
            "beside": self.previewed * policy.PREVIEW_SECONDS,
            "previews_share": policy.ORDINARY_SHARE,
            "changes_share": policy.REBUILD_SHARE,
            "definitions_share": policy.DEFINITION_SHARE,
        }


NO_CHARGES = Charges()


class After(NamedTuple):
    """What a completion leaves to the lease that is asked for with it: what the quotas are charged
    first, as by `charge`, and the version of what was live, where it has been asked for."""

    charges: Charges
    live: str | None


def grant(
    worker: Asking,
    max_partitions: int,
    holds: Sequence[int],
    speed: Speed | None = None,
    *,
    by_set: bool = False,
    brings_changes: bool = False,
    after: After | None = None,
) -> Granted:
    """Up to `max_partitions` partitions with what is stale in each: those of the worker's share
    first, then those that it holds, and no more than its share, so that waiting workers get some.
    May be none.

    Previews come first, then changes, then new definitions, then forced rebuilds; but while the
    later ones wait, no more of a worker's time goes into the earlier ones than their quotas leave.
    A lease for previews names nothing else, one for changes what needs only the nodes that changed,
    and one for whole partitions what the worker, at its `speed`, evaluates within REBUILD_SECONDS.
    `by_set`: the worker knows expression sets. `brings_changes`: a lease for changes has the nodes
    that changed, where they are few. `after`: what it has completed in the same request.

    Raises WorkerGone."""
    clusters, live = worker.cluster_ids, None if after is None else after.live
    with transaction.atomic():
        spent = _begin(worker, NO_CHARGES if after is None else after.charges)
        owns = membership.owned(worker.id, spent)
        while found := queue.candidates(clusters, holds, owns.first(holds)):
            candidates, kind = policy.choose(found, spent)
            nodes = {item.partition: item.nodes for item in candidates}
            brings = brings_changes and kind == CHANGE
            work = _Work(kind, nodes, set(holds), speed, by_set, brings, spent.incarnation, live)
            wanted = min(max_partitions, _size(candidates, work))
            if kind & WHOLE:
                wanted = _fitting(candidates[:wanted], work)
            jobs = queue.fetch(candidates, wanted)
            answer = _granted(worker, jobs, work)
            # Jobs whose work is done already do not count; others took the rest of them.
            if answer.leases or not jobs:
                leased = {item.partition for item in answer.leases}
                of = frozenset(item.cluster for item in candidates if item.partition in leased)
                return Granted(answer, of, owns.counting, spent.epoch)
        return Granted(LeaseAnswer([], {}), frozenset(), owns.counting, spent.epoch)


class _Work(NamedTuple):
    """What a lease is made for. `nodes`: of the partitions that wait; `held`: those that the worker
    holds."""

    kind: Kind
    nodes: dict[int, int]
    held: set[int]
    speed: Speed | None
    by_set: bool
    brings_changes: bool
    incarnation: str
    live: str | None


def _fitting(candidates: list[Candidate], work: _Work) -> int:
    """How many of them the worker evaluates in time. One is looked at, since the partitions of a
    rebuild, or of a definition, wait for the same as a rule; what is more than expected of another
    partition waits for the next lease."""
    if work.speed is None or len(candidates) < 2:  # noqa: PLR2004 - one is leased whatever it takes
        return len(candidates)
    partition = candidates[0].partition
    items = staleness.stale([partition])
    named, _ = policy.named(items, work.kind, is_held=partition in work.held)
    expressions = policy.count(named)
    return policy.fitting(candidates, expressions, work.speed, work.held)


class _Sharing(NamedTuple):
    """`workers`: those that may take what waits; `changed`: the nodes that changed in each of the
    first partitions."""

    workers: int
    changed: list[int]


def _size(candidates: list[Candidate], work: _Work) -> int:
    """How many of the candidates the worker is given."""
    first = candidates[: policy.MAX_CHANGES] if work.kind == CHANGE else []
    values = {
        "clusters": sorted({item.cluster for item in candidates}),
        "seconds": load().lease_seconds,
        "partitions": [item.partition for item in first],
        "most": MAX_COUNTED,
    }
    (sharing,) = sql.bound(_Sharing, __file__, "sharing", values)
    living = max(1, sharing.workers)
    if work.kind == PREVIEW:
        return policy.preview_lease_size(len(candidates), living)
    held = len({item.partition for item in candidates} & work.held)
    divided = policy.lease_size(len(candidates), living, held)
    if work.kind != CHANGE:
        return divided
    expressions = expression_sets.size(work.live)
    return max(divided, policy.changes_together(sharing.changed, expressions, work.speed))


def _granted(worker: Asking, jobs: dict[int, int], work: _Work) -> LeaseAnswer:
    stale: dict[int, list[staleness.Stale]] = {}
    for item in staleness.stale(list(jobs)):
        stale.setdefault(item.partition, []).append(item)
    learning = vocabularies.after(set(jobs) - stale.keys()) if work.kind == LEARNING else {}
    queue.succeed([job for key, job in jobs.items() if key not in stale and key not in learning])
    named = {partition: _named(partition, items, work) for partition, items in stale.items()}
    named |= {partition: ([], LEARNING) for partition in learning}
    wanted = set[int]().union(*(item.expressions for items, _ in named.values() for item in items))
    live = naming.shared(wanted, work.live) if work.by_set and wanted else None
    kept = {key: job for key, job in jobs.items() if key in named}
    leased = _grant(worker, kept, named, live)
    if live is not None:
        wanted -= live.order.positions.keys()
    definitions = {
        str(key): Definition(text, namespaces)
        for key, (text, namespaces) in expressions.definitions(wanted).items()
    }
    if learning:
        leased = [replace(item, vocabulary_rev=learning.get(item.partition)) for item in leased]
    if work.brings_changes:
        bases = {partition: _oldest_base(items) for partition, (items, _) in named.items()}
        brought = changes.since({key: rev for key, rev in bases.items() if rev is not None})
        leased = [replace(item, changes=brought.get(item.partition, UNSET)) for item in leased]
    return LeaseAnswer(
        leased,
        definitions,
        load().evaluation_seconds,
        work.incarnation,
        UNSET if live is None else live.version,
    )


def _oldest_base(items: Sequence[staleness.Stale]) -> int | None:
    """None where something needs more than what has changed."""
    bases = [item.base_rev for item in items if item.base_rev is not None]
    return min(bases, default=None) if len(bases) == len(items) else None


def _named(
    partition: int, items: list[staleness.Stale], work: _Work
) -> tuple[list[staleness.Stale], Kind]:
    is_held = partition in work.held
    named, kind = policy.named(items, work.kind, is_held=is_held)
    if kind & WHOLE:
        nodes = work.nodes.get(partition, 0)
        most = policy.part(policy.count(named), nodes, work.speed, is_held=is_held)
        named = policy.first(named, most)
    return named, kind


def _grant(
    worker: Asking,
    jobs: dict[int, int],
    named: dict[int, tuple[list[staleness.Stale], Kind]],
    live: ExpressionSet | None,
) -> list[LeasedPartition]:
    """A lease for each job, in their order, by the bitmaps of a set where there is one."""
    parameters = {
        "worker": worker.id,
        "partitions": list(jobs),
        "jobs": list(jobs.values()),
        "kinds": [int(named[partition][1]) for partition in jobs],
        "seconds": load().lease_seconds,
    }
    granted = sql.bound(_Leased, __file__, "grant_leases", parameters) if jobs else []
    return [_leased(row, named[row.partition][0], live) for row in granted]


def _leased(
    row: _Leased, items: list[staleness.Stale], live: ExpressionSet | None
) -> LeasedPartition:
    groups: list[OfSet] | UnsetType = UNSET
    each = [(key, item.base_rev) for item in items for key in item.expressions]
    if live is not None:
        groups, each = naming.grouped(items, live.order)
    return LeasedPartition(
        lease=str(row.lease),
        partition=row.partition,
        cluster=str(row.cluster),
        rev=row.rev,
        capacity=row.capacity,
        expressions=[StaleExpression(*item) for item in each],
        of_set=groups,
    )


# -- keeping and ending ----------------------------------------------------------------------------


def heartbeat(worker: Asking, leases: Sequence[str], done: Done | None = None) -> list[str]:
    """Extend the worker's leases that stand; those that do not. `done`: what it says that it did of
    late. Raises WorkerGone."""
    with transaction.atomic():
        _beat(worker, done)
        standing = Lease.objects.filter(worker=worker.id, uuid__in=leases, deadline__gt=Now())
        kept = {str(row.uuid) for row in locks.rows(standing)}
        deadline = Now() + timedelta(seconds=load().lease_seconds)
        Lease.objects.filter(uuid__in=kept).update(deadline=deadline)
    return [item for item in leases if str(uuid.UUID(item)) not in kept]


def _beat(worker: Asking, done: Done | None = None) -> None:
    """Raises WorkerGone, also for a worker of another incarnation."""
    values = {
        "worker": worker.id,
        "seconds": done and done.seconds,
        "partitions": done and done.partitions,
        "documents": done and done.documents,
    }
    if not locks.bound(Lock.WORKER, int, __file__, "beat", values):
        raise WorkerGone(GONE)


def _begin(worker: Asking, charges: Charges) -> SpentQuotas:
    """As `_beat`, with the fleet held; what the worker has spent of its quotas."""
    values = {
        **{"worker": worker.id, **_KINDS, **charges.values()},
        **{"namespace": locks.NAMESPACE, "fleet": int(Lock.FLEET)},
    }
    locks.taking(Lock.FLEET)
    found = locks.bound(Lock.WORKER, SpentQuotas, __file__, "begin_lease", values)
    if not found:
        raise WorkerGone(GONE)
    return found[0]


class _Finished(NamedTuple):
    lease: str
    partition: int
    rev: int
    leased_at: datetime
    kind: int
    job: str | None


def finish(worker: Asking, leases: Iterable[str]) -> dict[str, Ended]:
    """End the leases of these that still stand, and their jobs with them.

    In the caller's transaction, which has locked the partitions; a lease that is over stays over.
    """
    values = {"worker": worker.id, "leases": sorted(set(leases)), "preview": int(PREVIEW)}
    rows = locks.bound(Lock.LEASE, _Finished, __file__, "finish_leases", values)
    return {row.lease: Ended(row.partition, row.rev, row.leased_at, Kind(row.kind)) for row in rows}


def charge(worker: Asking, charges: Charges) -> None:
    """Charge the time since then to the worker's quotas. Call it after the transaction that
    finished the leases: a worker's row is locked before its leases."""
    if charges != NO_CHARGES:
        sql.run_binary(__file__, "charge_quotas", {"worker": worker.id, **charges.values()})


def give_up(worker: Asking, leases: Sequence[str], reason: str, delay: int = 0) -> None:
    """Give leases back: their partitions can be leased again at once, or, where the worker could
    not evaluate them, after `delay` seconds, or when they change. One that is locked, by a
    heartbeat for example, is waited for: who gives back is not asked again."""
    with transaction.atomic():
        theirs = locks.rows(Lease.objects.filter(worker=worker.id, uuid__in=leases))
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


def give_back_unnamed(worker: Caller, named: Sequence[str]) -> None:
    """End the worker's leases that it does not name when it asks for more: the answer that granted
    them was lost, in an outage of the database after the commit for example, and nobody would
    evaluate their partitions before the deadline."""
    lost = set(worker.leases) - {uuid.UUID(item) for item in named}
    if lost:
        give_up(worker, sorted(map(str, lost)), "the answer did not arrive")


def end_former(worker: Worker, former: str) -> int:
    """Take back the leases of the worker that this one was before it started again: nobody else
    will complete them, and the deadline may be far away. How many there were."""
    with transaction.atomic():
        theirs = Lease.objects.filter(worker__uuid=former, worker__token=worker.token_id)
        # One that is being completed is left for its deadline.
        rows = locks.rows(theirs.exclude(worker=worker.pk), skip_locked=True)
        count = len(_release(rows)) if rows else 0
    if count:
        log.info("its leases are taken back", action="former_ended", worker=former, leases=count)
    return count


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
    queue.abort([row.job_id for row in rows])
    Lease.objects.filter(uuid__in=[row.uuid for row in rows]).delete()
    # For everything: what the lease did not name has no job either.
    partitions = [row.partition_id for row in rows]
    queue.defer_stale(partitions, delay)
    return partitions


# -- housekeeping ----------------------------------------------------------------------------------


def repair() -> int:
    """Find what the queue forgot: stale partitions without a job, and jobs that run without a
    lease. How many there were."""
    with transaction.atomic():
        locks.fleet()
        orphans = queue.orphans()
        queue.abort(orphans)
        known = queue.known_partitions()
        lost = [item for item in staleness.stale_partitions() if item not in known]
        queue.defer_stale(lost)
    if orphans or lost:
        log.warning("work found", action="sweep", orphans=len(orphans), partitions=len(lost))
    return len(orphans) + len(lost)


def learn() -> int:
    """Leave the vocabularies that lag behind to whoever has nothing else to do; how many."""
    with transaction.atomic():
        locks.fleet()
        known = queue.known_partitions()
        lagging = [item for item in vocabularies.lagging() if item not in known]
        queue.defer_partitions(lagging, LEARNING)
    return len(lagging)


def end_in(ids: Sequence[int]) -> None:
    """End the leases in partitions that are to be deleted. Relies on: the partitions are locked."""
    leases = locks.rows(Lease.objects.filter(partition__in=ids))
    queue.abort([row.job_id for row in leases])
    Lease.objects.filter(uuid__in=[row.uuid for row in leases]).delete()


def oldest_seconds() -> float:
    """For how long the oldest lease has stood; 0 without any."""
    ((seconds,),) = sql.rows(__file__, "oldest_lease", {})
    return float(seconds)
