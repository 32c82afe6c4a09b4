"""Completions: results applied and jobs finished in one transaction; then what is reached is
published."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from tagmill import locks
from tagmill.audit.acting import Actor, acting
from tagmill.fleet import incarnation, vocabularies
from tagmill.fleet.models import Partition
from tagmill.flows import answers
from tagmill.flows.answers import Answered
from tagmill.locks import Lock
from tagmill.matches import expression_sets, flips, matches, staleness
from tagmill.matches.flips import Evaluated, Settled
from tagmill.matches.matches import Applied
from tagmill.tags import ending, failures
from tagmill.work import leases, policy, queue, workers
from tagmill.work.leases import After, Charges
from tagmill.work.policy import Kind
from tagmill.work.workers import Asking
from tagmill_wire.messages import Completion, CompletionAnswer, PartitionResult, ResultOutcome


@dataclass
class _Partition:
    """A row of the query `lock_answered`; what settles moves `settled_rev`."""

    id: int
    cluster_id: int
    rev: int
    settled_rev: int
    capacity: int
    next_slot: int


class _Held(NamedTuple):
    incarnation: str | None
    expressions: list[int]


class Completed(NamedTuple):
    """`after`: the worker's quotas are still to be charged, by the next lease or by `charge`."""

    answer: CompletionAnswer
    after: After


def complete(worker: Asking, completion: Completion) -> CompletionAnswer:
    """As `store`, and the worker's quotas are charged."""
    answer, after = store(worker, completion)
    leases.charge(worker, after.charges)
    return answer


def store(worker: Asking, completion: Completion) -> Completed:
    """Accept the results by compare-and-set, whether or not their leases still stand.

    What concerns a partition that is gone, or that the worker's token does not name, is stale.
    Raises Invalid for a bitmap or a rev that cannot be, UnknownExpressionSet, and
    IncarnationChanged for results of another incarnation; then nothing of the completion is
    applied.
    """
    learnt = _read(worker, completion.results)
    answered = answers.read(completion)
    with transaction.atomic():
        partitions = _locked(worker, completion.results)
        failing = {item.expression for part in completion.results for item in part.failures}
        failures.lock(failing)
        stored = _stored(completion, answered, partitions)
        for item in learnt:
            if item.partition in partitions:
                vocabularies.learn(item)
        ended = leases.finish(worker, (part.lease for part in completion.results))
        failed = _count_failures(worker, completion.results, partitions, ended)
        # A partition that changed meanwhile, or an expression that failed, still waits.
        unsure = sorted({lease.partition for lease in ended.values()} - stored.fresh)
        if unsure and staleness.any_in(unsure):
            queue.defer_stale(unsure)
    # Whatever it names: where this fails, the worker sends it all again, and nothing applies then.
    named = set[int]().union(*(item.expressions for item in answered))
    # The audit names the token by which a tag was published.
    with acting(lambda: Actor(worker.token_name, "worker")):
        ending.end_reached(sorted(named), failing)
    failures.say(worker.name, str(worker.uuid), failed)
    outcomes = [_outcome(item, stored.applied, ended) for item in answered]
    after = After(_charges(answered, ended), stored.live)
    return Completed(CompletionAnswer(outcomes), after)


def _read(worker: Asking, results: Sequence[PartitionResult]) -> list[vocabularies.Learnt]:
    """The vocabularies, unpacked within a bound before any lock is taken."""
    results = [part for part in results if part.vocabulary is not None]
    if not results:
        return []
    budget = vocabularies.Budget()
    named, clusters = {part.partition for part in results}, worker.cluster_ids
    found = Partition.objects.filter(id__in=named)
    allowed = found if clusters is None else found.filter(cluster__in=clusters)
    ids = set(allowed.values_list("id", flat=True))
    learnt = [
        vocabularies.read(part.partition, part.rev, part.vocabulary_base, part.vocabulary, budget)
        for part in results
        if part.vocabulary is not None and part.partition in ids
    ]
    return [item for item in learnt if item is not None]


def _locked(worker: Asking, results: Sequence[PartitionResult]) -> dict[int, _Partition]:
    """The partitions that the worker may answer for, locked, so that revs and leases stay."""
    values = {
        "partitions": sorted({part.partition for part in results}),
        "clusters": worker.cluster_ids,
    }
    found = locks.bound(Lock.PARTITION, _Partition, __file__, "lock_answered", values)
    return {row.id: row for row in found}


class _Stored(NamedTuple):
    """`fresh`: partitions where everything that is live is known to be. `live`: its version, where
    that was asked for."""

    applied: Applied
    fresh: set[int]
    live: str | None


def _stored(
    completion: Completion, answered: Sequence[Answered], partitions: dict[int, _Partition]
) -> _Stored:
    """Raises Invalid, IncarnationChanged. After the partitions' locks: what declares a new
    incarnation looks at the partitions' matches after it."""
    found = [item for item in answered if item.part.partition in partitions]
    settled = _settled(completion, found, partitions)
    if settled is not None:
        return _Stored(Applied(settled.taken), _fresh(settled, partitions), settled.version)
    known = _known(completion, answered)
    results = [result for item in found for result in item.results(partitions[item.part.partition])]
    return _Stored(matches.apply(results, partitions, known), set(), None)


def _settled(
    completion: Completion, found: Sequence[Answered], partitions: dict[int, _Partition]
) -> Settled | None:
    """Where all results are of changed slots, and each is of another partition."""
    by_slots: dict[int, Evaluated] = {}
    for item in found:
        place = partitions[item.part.partition]
        evaluated = None if place.id in by_slots else item.by_slots(place)
        if evaluated is None:
            return None
        by_slots[place.id] = evaluated
    with matches.moving(partitions):
        return flips.settle(by_slots, partitions, completion.incarnation)


def _fresh(settled: Settled, partitions: dict[int, _Partition]) -> set[int]:
    """None where this process has not met what is live. What becomes live from now on leaves its
    own work with the queue."""
    live = expression_sets.known(settled.version)
    if live is None:
        return set()
    return {
        partition
        for partition, taken in settled.taken.items()
        if partitions[partition].settled_rev == partitions[partition].rev
        and live.order.positions.keys() <= taken
    }


def _known(completion: Completion, answered: Sequence[Answered]) -> set[int]:
    """The expressions of full results that exist, kept from the collector. Raises
    IncarnationChanged."""
    full = set[int]().union(*(item.full for item in answered))
    values = {"expressions": sorted(full)}
    (held,) = locks.bound(Lock.EXPRESSION, _Held, __file__, "hold_in_incarnation", values)
    if held.incarnation is None or held.incarnation != completion.incarnation:
        raise incarnation.changed()
    return set(held.expressions)


def _count_failures(
    worker: Asking,
    results: Sequence[PartitionResult],
    partitions: dict[int, _Partition],
    ended: dict[str, leases.Ended],
) -> list[failures.Failed]:
    """The failures that count. Failures of leases that are over do not: they were reported already,
    or will be."""
    found = [
        failures.Failed(
            failure.expression, lease.partition, lease.rev, lease.leased_at, failure.reason
        )
        for part in results
        if (lease := ended.get(part.lease)) and lease.partition == part.partition
        for failure in part.failures
    ]
    if not found:
        return []
    clusters = {partitions[item.partition].cluster_id for item in found}
    is_alone = not workers.live(clusters, but=worker.id)
    counted = set(failures.count(worker.id, found, is_alone=is_alone))
    return [item for item in found if item.expression in counted]


def _charges(answered: Sequence[Answered], ended: dict[str, leases.Ended]) -> Charges:
    """The time that previews, changes and definitions took."""

    def began(kind: Kind) -> datetime | None:
        return min((item.leased_at for item in ended.values() if item.kind == kind), default=None)

    previewed = [
        len(item.expressions)
        for item in answered
        if (lease := ended.get(item.part.lease)) and lease.kind == policy.PREVIEW
    ]
    kinds = policy.PREVIEW, policy.CHANGE, policy.DEFINITION
    previews, changes, definitions = map(began, kinds)
    return Charges(previews, changes, definitions, max(previewed, default=0))


def _outcome(answered: Answered, applied: Applied, ended: Container[str]) -> ResultOutcome:
    part, expressions = answered.part, answered.expressions
    count = len(applied.of(part.partition).intersection(expressions))
    return ResultOutcome(
        lease=part.lease,
        outcome="applied" if part.lease in ended else "late",
        applied=count,
        stale=len(expressions) - count,
    )
