"""Completions: results applied, jobs finished, tags published, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from tagmill.config import load
from tagmill.errors import Invalid
from tagmill.fleet import vocabularies
from tagmill.fleet.models import Cluster, Partition
from tagmill.rebuilds import leases, rebuilds
from tagmill.rebuilds.models import Worker
from tagmill.tags import matches, previews, publishing
from tagmill.tags.models import Expression, Tag
from wire import bitmap
from wire.messages import (
    Completion,
    CompletionAnswer,
    MatchResult,
    PartitionResult,
    ResultOutcome,
)

log = structlog.get_logger("tagmill.completions")

REASON_LENGTH = 1000
# What a worker says of an expression that was given too little time.
STOPPED = "stopped after"
# Expressions that one completion has lines in the log about, and tags that one of them names.
MAX_LOGGED, MAX_NAMES = 16, 8


def complete(worker: Worker, completion: Completion) -> CompletionAnswer:
    """Accept the results by compare-and-set, whether or not their leases still stand.

    What concerns a partition that is gone, or that the worker's token does not name, is stale.
    Raises Invalid for a bitmap or a rev that cannot be; then nothing of the completion is applied.
    """
    with transaction.atomic():
        partitions = _locked(worker, completion.results)
        results = [
            result
            for number, part in enumerate(completion.results)
            if part.partition in partitions
            for result in _results(part, partitions[part.partition], f"results[{number}]")
        ]
        capacities = {partition.id: partition.capacity for partition in partitions.values()}
        applied = matches.apply(results, capacities)
        for part in completion.results:
            if part.vocabulary is not None and part.partition in partitions:
                base = part.vocabulary_base
                vocabularies.learn(partitions[part.partition], part.rev, base, part.vocabulary)
        finished = leases.finish(worker, (part.lease for part in completion.results))
        standing = finished.partitions
        failed = _count_failures(completion.results, standing)
        publishing.publish(applied.expressions)
        rebuilds.finish_reached()
        rebuilds.notify_progress()
        failing = {item.expression for part in completion.results for item in part.failures}
        previews.notify_evaluated([*applied.expressions, *failing])
        # A partition that changed meanwhile, or an expression that failed, still waits.
        still_stale = matches.stale(sorted(standing.values()))
        urgent = {item.partition for item in still_stale if item.is_preview}
        ordinary = {item.partition for item in still_stale if not item.is_preview}
        leases.defer_partitions(ordinary)
        leases.defer_partitions(urgent, leases.PREVIEW)
    if finished.previews_since is not None:
        most = max(
            len(part.matches) for part in completion.results if part.lease in finished.previews
        )
        leases.owe_ordinary(worker, finished.previews_since, most)
    if failed:
        _log_failures(worker, completion.results, standing)
    return CompletionAnswer([_outcome(part, applied, standing) for part in completion.results])


def _locked(worker: Worker, results: Sequence[PartitionResult]) -> dict[int, Partition]:
    """Those that the worker may answer for. Their locks keep revs and leases as they are."""
    rows = Partition.objects.filter(id__in={part.partition for part in results})
    if not worker.token.all_clusters:
        rows = rows.filter(cluster__in=Cluster.objects.filter(worker_tokens=worker.token))
    return {row.id: row for row in rows.order_by("id").select_for_update(no_key=True, of=("self",))}


def _results(part: PartitionResult, partition: Partition, path: str) -> list[matches.Result]:
    if not 0 <= part.rev <= partition.rev:
        raise Invalid(
            f"partition {partition.id} is at rev {partition.rev}, not {part.rev}",
            field=f"{path}.rev",
        )
    # Slots that nobody has been given yet hold no node.
    taken = (1 << partition.next_slot) - 1
    return [
        _result(match, part.rev, partition, taken, f"{path}.matches[{number}]")
        for number, match in enumerate(part.matches)
    ]


def _result(
    match: MatchResult, rev: int, partition: Partition, taken: int, path: str
) -> matches.Result:
    if (match.base_rev is None) != (match.evaluated is None):
        raise Invalid("a delta has both base_rev and evaluated", field=path)
    evaluated = None
    if match.evaluated is not None:
        evaluated = _bits(match.evaluated, partition.capacity, f"{path}.evaluated")
    members = _bits(match.members, partition.capacity, f"{path}.members") & taken
    return matches.Result(match.expression, partition.id, rev, members, match.base_rev, evaluated)


def _bits(text: str, capacity: int, path: str) -> int:
    try:
        return bitmap.decode(text, capacity)
    except ValueError as error:
        raise Invalid(str(error), field=path) from None


def _count_failures(results: Sequence[PartitionResult], standing: dict[str, int]) -> int:
    """One attempt for an expression, in however many of these partitions it failed. Leases that are
    over do not count: their failures were reported already, or will be.

    After `evaluation_attempts` the expression is failed, and is leased no more; those before that
    are forgotten when the partitions where it failed have a result (`maintenance.forgive`).
    """
    failures = {
        failure.expression: failure.reason
        for part in results
        if part.lease in standing
        for failure in part.failures
    }
    most = load().evaluation_attempts
    for expression in sorted(failures):
        chosen = Expression.objects.filter(id=expression, failed_at=None)
        chosen.update(attempts=F("attempts") + 1, attempted_at=Now())
        reason = _readable(failures[expression])
        reason = f"{reason}. {_what_helps(reason)}"
        chosen.filter(attempts__gte=most).update(failed_at=Now(), failure=reason)
    return len(failures)


def _what_helps(reason: str) -> str:
    if not reason.startswith(STOPPED):
        return "Mend the definition, or what keeps workers from evaluating it, and rebuild the tag."
    seconds = load().evaluation_seconds
    return (
        "Simplify the definition, or allow more time (TAGMILL_EVALUATION_SECONDS on the server,"
        f" which is {seconds:g}) and rebuild the tag."
    )


def _log_failures(
    worker: Worker, results: Sequence[PartitionResult], standing: dict[str, int]
) -> None:
    """A line for each expression that failed: where, whose it is, and why."""
    failures: dict[int, list[tuple[int, str]]] = {}
    for part in results:
        for failure in part.failures if part.lease in standing else ():
            failures.setdefault(failure.expression, []).append((part.partition, failure.reason))
    found = Expression.objects.in_bulk(sorted(failures)[:MAX_LOGGED])
    for key, expression in found.items():
        places = failures[key]
        rows = Tag.objects.filter(Q(expression=key) | Q(pending_expression=key)).order_by("name")
        log.warning(
            "an evaluation failed",
            action="evaluation_failed",
            worker=worker.name,
            worker_uuid=str(worker.uuid),
            expression=key,
            definition=expression.text[:REASON_LENGTH],
            tags=list(rows.values_list("name", flat=True)[:MAX_NAMES]),
            partitions=sorted(partition for partition, _ in places)[:MAX_LOGGED],
            reason=_readable(places[0][1]),
            attempts=expression.attempts,
            is_final=expression.failed_at is not None,
        )
    if len(failures) > len(found):
        rest = len(failures) - len(found)
        log.warning("more evaluations failed", action="evaluation_failed", expressions=rest)


def _readable(reason: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in reason)
    return text[:REASON_LENGTH].rstrip(". ") or "no reason was given"


def _outcome(
    part: PartitionResult, applied: matches.Applied, standing: dict[str, int]
) -> ResultOutcome:
    count = sum((match.expression, part.partition) in applied.keys for match in part.matches)
    return ResultOutcome(
        lease=part.lease,
        outcome="applied" if part.lease in standing else "late",
        applied=count,
        stale=len(part.matches) - count,
    )
