"""Rebuilds: asked for, watched, cancelled, and finished when their targets are reached.

running ──► complete     every target reached
        ├─► failed       the rest reached, but an expression failed
        ├─► cancelled    by a user
        └─► superseded   another definition came before it was published
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from tagmill import locks, sql
from tagmill.errors import DatabaseUnavailable, ManualTag, NotCancellable, NotFound
from tagmill.locks import Lock
from tagmill.matches import staleness
from tagmill.matches.models import Expression
from tagmill.tags import failures, publishing
from tagmill.tags.models import Rebuild, Tag
from tagmill.work import policy, queue

State = Rebuild.State
# Somebody else changes the tags between our look at them and our lock. It takes that many
# coincidences in a row to give up.
ATTEMPTS = 8
# Bound what one run of the maintenance does; the next one goes on.
MAX_SETTLED = 100
MAX_DELETED = 20_000


class _Overtaken(Exception):
    """A tag was changed before we had its lock: look again."""


@dataclass(frozen=True)
class Progress:
    """`done` of `total` matches have reached their targets; `nodes_done` of `nodes_total` nodes are
    in partitions that are through. `eta_seconds` is None before the first, and 0 at the end."""

    state: str
    done: int
    total: int
    nodes_done: int
    nodes_total: int
    nodes_per_second: float | None
    eta_seconds: float | None


class FirstTags(NamedTuple):
    """`names` are the first of `total`, in the order in which the tags were made."""

    total: int
    names: list[str]


class _Reached(NamedTuple):
    rebuild: int
    has_failed: bool


class _TagsOfRebuild(NamedTuple):
    rebuild: int
    total: int
    names: list[str]


class _Totals(NamedTuple):
    """What a rebuild that is over keeps of its targets, and its row stores as JSON."""

    total: int
    done: int
    nodes_total: int
    nodes_done: int


def request(
    names: Sequence[str] | None, by: User | None, reason: str = Rebuild.Reason.FORCED
) -> Rebuild:
    """Evaluate these tags (None: all automatic ones) everywhere again, although nothing changed.

    Readers keep the old sets until the new ones arrive. A failed expression gets another chance.
    Raises NotFound, ManualTag.
    """
    for _ in range(ATTEMPTS):
        with contextlib.suppress(_Overtaken), transaction.atomic():
            return _request(names, by, Rebuild.Reason(reason))
    raise DatabaseUnavailable("too many changes to the same tags at once: try again")


def _request(names: Sequence[str] | None, by: User | None, reason: Rebuild.Reason) -> Rebuild:
    locks.fleet()
    before = _automatic(names)
    expressions = _expressions(before)
    # What settled matches are true at stays until theirs is kept.
    locks.query(Lock.PARTITION, __file__, "lock_all_partitions", {})
    failures.lock(expressions)
    locks.query(Lock.MATCH, __file__, "force_matches", {"expressions": expressions})
    tags = [tag.id for tag in before]
    chosen = [tag for tag in lock_tags(Q(id__in=tags), expressions) if tag.id in set(tags)]
    # A definition that came before the lock was not forced, and one that went was for nothing.
    if len(chosen) != len(tags) or _expressions(chosen) != expressions:
        raise _Overtaken
    failures.forget(Expression.objects.filter(id__in=expressions))
    return begin(tags, reason, by)


def lock_tags(wanted: Q, expressions: Sequence[int], *, to_delete: bool = False) -> list[Tag]:
    """Lock these tags, and all that wait for one of these expressions, at once and so in order: the
    beginning of a rebuild may publish them. Relies on: the expressions are locked, so that no
    other tag comes to wait for them."""
    either = wanted | Q(pending_expression__in=expressions)
    return locks.rows(Tag.objects.filter(either), to_delete=to_delete)


def begin(tags: Sequence[int], reason: Rebuild.Reason, by: User | None) -> Rebuild:
    """Capture the targets and leave the work with the queue. In the caller's transaction, which
    holds the fleet, the expressions and the tags (`lock_tags`)."""
    chosen = list(Tag.objects.filter(id__in=tags).order_by("id"))
    expressions = _expressions(chosen)
    if reason != Rebuild.Reason.FORCED:
        expressions = sorted(
            {tag.pending_expression_id for tag in chosen if tag.pending_expression_id is not None}
        )
        # An earlier failure is forgotten: this request gets an evaluation of its own.
        named = Expression.objects.filter(id__in=expressions)
        named.filter(named_at=None).update(named_at=Now())
        failures.forget(named)
    rebuild = Rebuild.objects.create(reason=reason, requested_by=by, state=State.RUNNING)
    rebuild.tags.add(*tags)
    sql.run(__file__, "capture_targets", {"rebuild": rebuild.id, "expressions": expressions})
    # A preview may have evaluated it everywhere already.
    waiting = Tag.objects.filter(pending_expression__in=expressions).order_by("id")
    publishing.publish_locked(list(waiting.values_list("id", flat=True)))
    if finish_reached([rebuild.id]):
        rebuild.refresh_from_db()
    if reason != Rebuild.Reason.FORCED:
        look_again(expressions)
    kind = policy.REBUILD if reason == Rebuild.Reason.FORCED else policy.DEFINITION
    queue.defer_partitions(staleness.stale_for(expressions), kind)
    return rebuild


def look_again(expressions: Sequence[int] | None = None) -> None:
    """Once this transaction has committed, publish the tags that wait for one of these expressions
    (None: for any) and for no match any more. Call it where tags begin to wait, since results that
    somebody stores at this moment see nothing of it, nor does it see them; and where fewer matches
    are missing, although no worker's results came."""
    transaction.on_commit(lambda: _look_again(expressions), robust=True)


def _look_again(expressions: Sequence[int] | None) -> None:
    if publishing.is_any_complete(expressions):
        with transaction.atomic():
            publishing.publish(expressions)
            finish_reached()


def supersede(tag: int) -> None:
    """End the rebuilds of a definition that is replaced before it was published."""
    _lock_defining(tag).update(state=State.SUPERSEDED, finished_at=Now())


def record_without(tag: int, clusters: Sequence[str]) -> None:
    """Note with the rebuild of the tag's definition which clusters it was published without."""
    _lock_defining(tag).update(published_without=list(clusters))


def _lock_defining(tag: int) -> QuerySet[Rebuild]:
    """The running rebuilds of the tag's definition. All that run are locked, at once and so in
    order: the same transaction may go on to end others."""
    running = locks.rows(Rebuild.objects.filter(state=State.RUNNING))
    return Rebuild.objects.filter(
        id__in=[rebuild.id for rebuild in running],
        tags=tag,
        reason__in=(Rebuild.Reason.CREATED, Rebuild.Reason.DEFINITION),
    )


def lock_of(tags: Sequence[int]) -> None:
    """All rebuilds that name the tags, which are to be deleted, and those that may end by that."""
    named = Rebuild.tags.through.objects.filter(tag_id__in=tags).values("rebuild_id")
    locks.rows(Rebuild.objects.filter(Q(id__in=named) | Q(state=State.RUNNING)))


def cancel(uuid: UUID) -> None:
    """Stop waiting. What is published stays: matches made stale by force are taken back, and a
    pending definition is dropped. Raises NotFound, NotCancellable."""
    with transaction.atomic():
        found = Rebuild.objects.filter(uuid=uuid).first()
        if found is None:
            raise NotFound(f"there is no rebuild {uuid}")
        locks.fleet()
        # Against another forced rebuild of the same, which would not see that its matches go back.
        targets = found.targets.values_list("expression_id", flat=True).distinct()
        failures.lock(targets)
        # If it is over, all is undone.
        locks.query(Lock.MATCH, __file__, "restore_matches", {"rebuild": found.id})
        tags = locks.rows(found.tags.all())
        (rebuild,) = locks.rows(Rebuild.objects.filter(id=found.id))
        if rebuild.state != State.RUNNING:
            raise NotCancellable(f"the rebuild is over: it is {rebuild.state}")
        if rebuild.reason != Rebuild.Reason.FORCED and any(map(_is_new, tags)):
            raise NotCancellable(
                "a new tag has no older definition to keep: delete the tag instead"
            )
        if rebuild.reason == Rebuild.Reason.DEFINITION:
            rebuild.tags.update(pending_expression=None)
        Rebuild.objects.filter(id=rebuild.id).update(state=State.CANCELLED, finished_at=Now())
        # Another tag may wait for what was taken back.
        look_again(list(targets))
        notify_progress()


def finish_reached(rebuilds: Sequence[int] | None = None) -> list[int]:
    """End the running rebuilds (these; None: any) that wait for nothing more; their ids.

    Call it when the last results are committed.
    """
    running = Rebuild.objects.filter(state=State.RUNNING)
    if rebuilds is not None:
        running = running.filter(id__in=rebuilds)
    locked = [rebuild.id for rebuild in locks.rows(running)]
    if not locked:
        return []
    reached = sql.named(_Reached, __file__, "reached", {"rebuilds": locked})
    for over in reached:
        state = State.FAILED if over.has_failed else State.COMPLETE
        Rebuild.objects.filter(id=over.rebuild).update(state=state, finished_at=Now())
    if reached:
        notify_progress()
    return [over.rebuild for over in reached]


def first_tags(rebuilds: Sequence[int], most: int) -> dict[int, FirstTags]:
    """For each of these rebuilds, how many tags it has, and the names of up to `most`."""
    values = {"rebuilds": list(rebuilds), "most": most}
    found = sql.named(_TagsOfRebuild, __file__, "first_tags", values)
    return {row.rebuild: FirstTags(row.total, row.names) for row in found}


def progress(rebuild: Rebuild) -> Progress:
    """Derived from the matches' revs against the targets, never counted."""
    # The targets first: where they are gone, the totals are there already.
    (targets,) = sql.named(_Totals, __file__, "progress", {"rebuild": rebuild.id})
    total, done, nodes_total, nodes_done = map(int, targets)
    current = Rebuild.objects.filter(id=rebuild.id).values_list("state", "totals").first()
    state, totals = current or (rebuild.state, rebuild.totals)
    if totals is not None:
        total, done, nodes_total, nodes_done = _Totals(*totals)
    elif state == State.COMPLETE:
        # Later rebuilds and changes do not undo it.
        done, nodes_done = total, nodes_total
    seconds = _seconds(rebuild)
    speed = nodes_done / seconds if nodes_done and seconds > 0 else None
    eta: float | None = None
    if state != State.RUNNING:
        eta = 0.0
    elif speed:
        eta = (nodes_total - nodes_done) / speed
    return Progress(state, done, total, nodes_done, nodes_total, speed, eta)


def settle() -> int:
    """Store the totals of rebuilds that are over, and delete their targets, MAX_DELETED at a time;
    how many targets. Not part of the transaction that ends a rebuild: that may be a completion."""
    over = Rebuild.objects.exclude(state=State.RUNNING).filter(totals__isnull=True)
    for rebuild in over.order_by("id")[:MAX_SETTLED]:
        found = progress(rebuild)
        totals = _Totals(found.total, found.done, found.nodes_total, found.nodes_done)
        Rebuild.objects.filter(id=rebuild.id, totals__isnull=True).update(totals=totals)
    with transaction.atomic():
        locks.fleet()
        locks.housekeeping()
        return sql.run(__file__, "delete_targets", {"most": MAX_DELETED})


def notify_progress() -> None:
    """Wake the event streams when this transaction commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('tagmill_progress', '')")


def _seconds(rebuild: Rebuild) -> float:
    """Seconds since the request, or that the rebuild took, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM coalesce(finished_at, clock_timestamp()) - requested_at) "
            "FROM rebuild WHERE id = %s",
            [rebuild.id],
        )
        found = cursor.fetchall()
    return next((float(seconds) for (seconds,) in found), 0.0)


def _is_new(tag: Tag) -> bool:
    """Never published, nor assigned by hand before it had a definition."""
    return tag.expression_id is None and not tag.assignments.exists()


def _automatic(names: Sequence[str] | None) -> list[Tag]:
    has_expression = Q(expression__isnull=False) | Q(pending_expression__isnull=False)
    if names is None:
        return list(Tag.objects.filter(has_expression))
    found = {tag.name: tag for tag in Tag.objects.filter(name__in=names)}
    for name in names:
        if name not in found:
            raise NotFound(f"there is no tag {name!r}")
        tag = found[name]
        if not (tag.expression_id or tag.pending_expression_id):
            raise ManualTag(f"{name!r} is assigned by hand: there is nothing to rebuild")
    return list(found.values())


def _expressions(tags: Sequence[Tag]) -> list[int]:
    return sorted(
        {
            expression
            for tag in tags
            for expression in (tag.expression_id, tag.pending_expression_id)
            if expression is not None
        }
    )
