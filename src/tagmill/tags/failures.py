"""Failed evaluations: which of them count, when an expression has failed, and when it starts anew.

An expression that runs away must end as failed, also where one worker is all there is; one worker
that is broken must not take away a tag that all others can evaluate. So a failure counts only for
what its lease was for, and an expression has failed when `evaluation_attempts` different workers
failed it. The failures of one worker alone count when no other one lives that could be asked, or
when it was given the expression PATIENCE times as often and nobody else took it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import structlog
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from tagmill import locks, sql
from tagmill.config import load
from tagmill.locks import Lock
from tagmill.matches.models import Expression
from tagmill.tags.models import Tag

# How much more often one worker fails an expression before its failures count, while others live.
PATIENCE = 3
REASON_LENGTH = 1000
# What a worker says of an expression that was given too little time.
STOPPED = "stopped after"
# Expressions that one completion has lines in the log about, tags and partitions that a line names.
MAX_LINES, MAX_NAMES = 16, 8

log = structlog.get_logger("tagmill.failures")


class Failed(NamedTuple):
    """A worker could not evaluate the expression in a partition that it leased at `rev`."""

    expression: int
    partition: int
    rev: int
    leased_at: datetime
    reason: str


def lock(expressions: Iterable[int]) -> None:
    """Call it before `count` and `forget`, and before any match is locked."""
    wanted = sorted(set(expressions))
    if wanted:
        values = {"expressions": wanted, "digest": b""}
        locks.query(Lock.EXPRESSION, __file__, "lock_expressions", values)


def count(worker: int, failures: Sequence[Failed], *, is_alone: bool) -> list[int]:
    """One failure for an expression, in however many partitions; the expressions that it counts
    for. `is_alone`: no other worker lives that may take these partitions. Relies on `lock`."""
    values = {
        "expressions": [item.expression for item in failures],
        "partitions": [item.partition for item in failures],
        "revs": [item.rev for item in failures],
    }
    countable = sql.values(__file__, "countable_failures", values) if failures else []
    by_expression: dict[int, list[Failed]] = {expression: [] for expression in countable}
    for item in failures:
        if item.expression in by_expression:
            by_expression[item.expression].append(item)
    if by_expression:
        _count(worker, by_expression, is_alone)
    return sorted(by_expression)


def _count(worker: int, failures: dict[int, list[Failed]], is_alone: bool) -> None:
    most = load().evaluation_attempts
    values = {
        "worker": worker,
        "expressions": list(failures),
        "leased_at": [max(item.leased_at for item in found) for found in failures.values()],
        "most": most,
        "most_alone": most if is_alone else most * PATIENCE,
    }
    for expression in sql.values(__file__, "count_failures", values):
        reason = _readable(failures[expression][0].reason)
        reason = f"{reason}. {_what_helps(reason)}"
        Expression.objects.filter(id=expression).update(failed_at=Now(), failure=reason)


def forget(expressions: QuerySet[Expression]) -> None:
    """Somebody asks for them again: they are evaluated as if they had never failed. Relies on
    `lock`, or on having made or touched them."""
    expressions.filter(attempts__gt=0).update(attempts=0, failed_by=[], failed_at=None, failure="")


def say(worker: str, uuid: str, failures: Sequence[Failed]) -> None:
    """A line of the log for each expression that failed: where, whose it is, and why."""
    places: dict[int, list[Failed]] = {}
    for item in failures:
        places.setdefault(item.expression, []).append(item)
    found = Expression.objects.in_bulk(sorted(places)[:MAX_LINES]) if places else {}
    for key, expression in found.items():
        rows = Tag.objects.filter(Q(expression=key) | Q(pending_expression=key)).order_by("name")
        log.warning(
            "an evaluation failed",
            action="evaluation_failed",
            worker=worker,
            worker_uuid=uuid,
            expression=key,
            definition=expression.text[:REASON_LENGTH],
            tags=list(rows.values_list("name", flat=True)[:MAX_NAMES]),
            partitions=sorted(item.partition for item in places[key])[:MAX_NAMES],
            reason=_readable(places[key][0].reason),
            attempts=expression.attempts,
            is_final=expression.failed_at is not None,
        )
    if len(places) > len(found):
        rest = len(places) - len(found)
        log.warning("more evaluations failed", action="evaluation_failed", expressions=rest)


def _what_helps(reason: str) -> str:
    if not reason.startswith(STOPPED):
        return "Mend the definition, or what keeps workers from evaluating it, and rebuild the tag."
    seconds = load().evaluation_seconds
    return (
        "Simplify the definition, or allow more time (TAGMILL_EVALUATION_SECONDS on the server,"
        f" which is {seconds:g}) and rebuild the tag."
    )


def _readable(reason: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in reason)
    return text[:REASON_LENGTH].rstrip(". ") or "no reason was given"
