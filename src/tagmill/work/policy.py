"""Who is leased how much of what, and why: rules on plain values, without the database.

The capacity planner asks the same rules (`loadtest/planner/sharing.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tagmill.matches.staleness import Stale

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


class Kind(enum.IntFlag):
    """What a waiting job is for: any of these; without one, for vocabularies alone. The value is
    its priority in Procrastinate. A lease is for one of them, or for vocabularies."""

    LEARNING = 0
    REBUILD = 1
    CHANGE = 2
    PREVIEW = 4


LEARNING, REBUILD, CHANGE, PREVIEW = Kind.LEARNING, Kind.REBUILD, Kind.CHANGE, Kind.PREVIEW


class Candidate(NamedTuple):
    """A waiting job that may be leased now."""

    partition: int
    priority: int
    cluster: int


class SpentQuotas(NamedTuple):
    """Whether a worker has spent its quota of time for previews, and its quota for changes.
    `incarnation` is the incarnation of the database in which the worker registered."""

    previews: bool
    changes: bool
    incarnation: str


def kinds(stale: Iterable[Stale]) -> dict[int, Kind]:
    """What each partition waits for: an expression with a base needs only what has changed."""
    found: dict[int, Kind] = {}
    for item in stale:
        one = PREVIEW if item.is_preview else REBUILD if item.base_rev is None else CHANGE
        found[item.partition] = found.get(item.partition, LEARNING) | one
    return found


def choose(found: list[Candidate], spent: SpentQuotas) -> tuple[list[Candidate], Kind]:
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


def lease_size(waiting: int, workers: int, held: int) -> int:
    """How many of the partitions that wait one of these workers is given, who holds so many of
    them, so that none waits for another in the end: half of its part when they must be fetched, for
    which times differ; all of it when it holds them and the round trip is what costs most."""
    return min(
        MAX_ORDINARY,
        max(_part(waiting, 2 * workers), min(held, max(MIN_HELD, _part(waiting, workers)))),
    )


def preview_lease_size(waiting: int, workers: int) -> int:
    """As `lease_size`, of partitions that wait for a preview: somebody waits for all of them."""
    return _part(waiting, workers)


def _part(waiting: int, parts: int) -> int:
    return -(-waiting // parts)


def named(stale: list[Stale], kind: Kind) -> tuple[list[Stale], Kind]:
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
