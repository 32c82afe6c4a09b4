"""How many nodes a tag had over time, from its making: what the trail has kept of it.

The trail has the changes of each definition by itself. Those of the published one are counted
backwards from what the tag has now; those of an earlier one from its first evaluation, where all of
them are kept. As in the trail, deleted nodes leave without a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from tagmill import sql
from tagmill.audit import trail
from tagmill.audit.models import Event
from tagmill.config import load
from tagmill.matches.expressions import digest
from tagmill.matches.models import Expression
from tagmill.tags import freshness
from tagmill.tags.models import Tag

# Definitions that are told apart, and changes of each that are read. What was before is a gap.
MAX_PERIODS = 20
MAX_CHANGES = 20_000
# More than a chart has pixels. The last in each stretch of time is kept.
MAX_POINTS = 2_000


class Point(NamedTuple):
    """From this moment on: so many nodes; None: it is not known."""

    at: datetime
    node_count: int | None


class _Period(NamedTuple):
    """From when an expression was published. None: it is not known which, or none is left of it."""

    began: datetime
    expression: int | None


class _Change(NamedTuple):
    """What changed in one second. `total`: the changes that were read in all."""

    at: datetime
    difference: int
    total: int


def of(tag: Tag) -> list[Point]:
    """Ascending, up to now."""
    now = datetime.now(UTC)
    count = freshness.status([tag])[tag.id].node_count
    periods = _periods(tag) if tag.expression_id else []
    last = periods[-1].began if periods else None
    before, current = _backwards(_changes(tag), count, last)
    found = [Point(tag.created_at, 0)]
    if _is_cut(tag, periods, before):
        found.append(Point(tag.created_at, None))
    for period, following in pairwise(periods):
        found += _earlier(period, following.began)
    found += [*current, Point(now, count)]
    # One that was evaluated before, for another tag, was published in the moment of its making.
    return _thinned([point._replace(at=max(point.at, tag.created_at)) for point in found])


def _periods(tag: Tag) -> list[_Period]:
    """The definitions that were published, the oldest first."""
    events = trail.of(Event.Kind.TAG, tag.id).filter(action=Event.Action.PUBLISHED)
    rows = [
        (at, changes)
        for at, changes in events.order_by("-id").values_list("at", "changes")[:MAX_PERIODS]
        if "pending_definition" in changes
    ]
    digests = [_digest(changes) for _, changes in rows]
    known = {
        bytes(key): expression
        for expression, key in Expression.objects.filter(digest__in=digests).values_list(
            "id", "digest"
        )
    }
    found = [_Period(at, known.get(key)) for (at, _), key in zip(rows, digests, strict=True)]
    return found[::-1]


def _digest(published: dict[str, Any]) -> bytes:
    (text, _), (namespaces, _) = (
        published[f"pending_{name}"] for name in ("definition", "namespaces")
    )
    return digest(text, namespaces)


def _is_cut(tag: Tag, periods: Sequence[_Period], before: int) -> bool:
    """Whether something of the tag was before what is known of it."""
    if not periods:
        return before > 0 or tag.expression_id is not None
    return len(periods) == MAX_PERIODS


def _changes(tag: Tag) -> list[_Change]:
    """What evaluations of the tag's definition changed, or what was assigned."""
    name = "sizes_of_assigned" if tag.expression_id is None else "sizes_of_evaluated"
    key = tag.expression_id or tag.id
    return sql.named(_Change, __file__, name, {"id": key, "most": MAX_CHANGES})


def _backwards(
    changes: Sequence[_Change], count: int, began: datetime | None
) -> tuple[int, list[Point]]:
    """From what the tag has now, to when its definition was published, or as far as changes are
    kept; and how many nodes it had before."""
    found = []
    for change in reversed(changes):
        if began is not None and change.at < began:
            break
        found.append(Point(change.at, count))
        count = max(0, count - change.difference)
    if began is not None:
        found.append(Point(began, count))
    return count, found[::-1]


def _earlier(period: _Period, end: datetime) -> list[Point]:
    """The sizes by a definition that is published no more, forwards from nothing."""
    changes: list[_Change] = []
    horizon = datetime.now(UTC) - timedelta(days=load().change_days)
    if period.expression is not None and period.began > horizon:
        values = {"id": period.expression, "most": MAX_CHANGES}
        changes = sql.named(_Change, __file__, "sizes_of_evaluated", values)
    if not changes or changes[0].total >= MAX_CHANGES or changes[0].at < horizon:
        return [Point(period.began, None)]
    size, found = 0, [Point(period.began, 0)]
    for change in changes:
        size = max(0, size + change.difference)
        if change.at <= period.began:
            found[0] = Point(period.began, size)
        elif change.at < end:
            found.append(Point(change.at, size))
    return found


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most MAX_POINTS and the gaps."""
    if len(points) <= MAX_POINTS:
        return list(points)
    width = (points[-1].at - points[0].at) / MAX_POINTS
    kept = [
        one
        for one, following in pairwise(points)
        if one.node_count is None
        or (one.at - points[0].at) // width != (following.at - points[0].at) // width
    ]
    return [points[0], *kept, points[-1]]
