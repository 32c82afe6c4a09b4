"""Who is leased how much of what, and why: rules on plain values, without the database.

The capacity planner asks the same rules (`loadtest/planner/sharing.py`).
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tagmill.matches.staleness import Stale

# Quotas, while other work waits: after each second that a worker spends on previews alone it takes
# none for this many seconds, so that they take at most a quarter of its time.
# PREVIEW_SECONDS are charged for each preview besides: its request, its answer and its jobs.
ORDINARY_SHARE = 3
PREVIEW_SECONDS = 0.1
# Likewise for changes, which take at most half of what previews leave (3/8), and for new
# definitions, which take at most half of what these leave (3/16). The parts must sum up to less
# than all: where they do not, one quota is over when the other is spent, and rebuilds starve.
REBUILD_SHARE = 5 / 3
DEFINITION_SHARE = 13 / 3
# What a lease of whole partitions may take to evaluate, and to read those that the worker does not
# hold: everything else waits behind it, a second at most. Less to read would leave a worker that
# fetches without a page to evaluate, between two leases.
REBUILD_SECONDS = 0.25
READING_SECONDS = 0.75
# A job that was overtaken by so many times the jobs that wait counts as held: what no worker holds
# is not left behind by what is held and made again and again.
MAX_OVERTAKEN = 8
# An ordinary lease takes one preview along for so many expressions of tags, where it has to read
# the partition for these anyway. Where it is held, previews have their quota and no more: what rode
# along would come on top of it, and a definition that nobody has asked before costs more than one
# that is evaluated again.
RIDERS = 4
# An ordinary lease of many partitions, each to be fetched, would keep previews of them waiting.
MAX_ORDINARY = 16
# An evaluator that parses the documents of each lease anew, as lxml does, takes hardly longer for
# so many expressions than for one; the kernel is quick enough never to be given so few.
MIN_NAMED = 8
# Changes that a worker evaluates within this time are not divided among workers, nor are they more
# than MAX_CHANGES: a lease and its completion cost the server as much as some twenty partitions in
# them, and to divide what takes so little would gain nobody more than this.
GRAIN_SECONDS = 0.03
MAX_CHANGES = 64
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
    DEFINITION = 8


LEARNING, REBUILD, CHANGE, PREVIEW = Kind.LEARNING, Kind.REBUILD, Kind.CHANGE, Kind.PREVIEW
DEFINITION = Kind.DEFINITION
# They need every node of a partition.
WHOLE = DEFINITION | REBUILD


class Candidate(NamedTuple):
    """A waiting job that may be leased now."""

    partition: int
    priority: int
    cluster: int
    nodes: int


class SpentQuotas(NamedTuple):
    """Whether a worker has spent its quota of time for previews, its quota for changes, and its
    quota for new definitions. `incarnation` is the incarnation of the database in which the worker
    registered, `epoch` that of the membership."""

    previews: bool
    changes: bool
    definitions: bool
    incarnation: str
    epoch: int = 0


class Speed(NamedTuple):
    """What evaluation takes a worker, in seconds: to read one node's documents where it does not
    hold them, and one expression on one node."""

    document: float
    evaluation: float

    def reading(self, nodes: int, *, is_held: bool) -> float:
        return 0.0 if is_held else nodes * self.document

    def evaluating(self, nodes: int, expressions: int) -> float:
        return nodes * expressions * self.evaluation


def kinds(stale: Iterable[Stale]) -> dict[int, Kind]:
    """What each partition waits for: expressions with a base need only what has changed, and those
    without are new definitions, but for a rebuild that somebody forced."""
    found: dict[int, Kind] = {}
    for item in stale:
        found[item.partition] = found.get(item.partition, LEARNING) | _kind(item)
    return found


def _kind(item: Stale) -> Kind:
    if item.is_preview:
        return PREVIEW
    if item.base_rev is not None:
        return CHANGE
    return REBUILD if item.is_forced else DEFINITION


def choose(found: list[Candidate], spent: SpentQuotas) -> tuple[list[Candidate], Kind]:
    """The jobs to choose from, the first ones first; and what they are taken for. The first kind
    that waits, unless its quota is spent and a later one waits, too."""
    quotas = {PREVIEW: spent.previews, CHANGE: spent.changes, DEFINITION: spent.definitions}
    of = {kind: _waiting(found, int(kind)) for kind in (PREVIEW, CHANGE, DEFINITION, REBUILD)}
    waiting = [kind for kind, items in of.items() if items]
    for kind in waiting:
        if kind == waiting[-1] or not quotas[kind]:
            return of[kind], kind
    # Learning waits until there is nothing else.
    return found, LEARNING


def _waiting(found: list[Candidate], bit: int) -> list[Candidate]:
    """A flag's `&` takes a microsecond, an integer's nothing, and thousands of jobs may wait."""
    return [item for item in found if item.priority & bit]


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


def changes_together(changed: Iterable[int], expressions: int, speed: Speed | None) -> int:
    """How many partitions, in each of which so many nodes have changed, a worker evaluates within
    GRAIN_SECONDS, MAX_CHANGES at most; 0 where its speed is not known."""
    if speed is None:
        return 0
    seconds = 0.0
    for count, nodes in enumerate(itertools.islice(changed, MAX_CHANGES)):
        seconds += speed.reading(nodes, is_held=False) + speed.evaluating(nodes, expressions)
        if seconds > GRAIN_SECONDS:
            return count
    return MAX_CHANGES


def _part(waiting: int, parts: int) -> int:
    return -(-waiting // parts)


def fitting(
    candidates: Sequence[Candidate], expressions: int, speed: Speed | None, held: Container[int]
) -> int:
    """How many of these partitions, of which each waits for so many expressions, a worker evaluates
    within REBUILD_SECONDS, and reads within READING_SECONDS: one at least. All, where its speed is
    not known."""
    if speed is None:
        return len(candidates)
    evaluating = reading = 0.0
    for count, item in enumerate(candidates):
        evaluating += speed.evaluating(item.nodes, expressions)
        reading += speed.reading(item.nodes, is_held=item.partition in held)
        if evaluating > REBUILD_SECONDS or reading > READING_SECONDS:
            return max(1, count)
    return len(candidates)


def part(count: int, nodes: int, speed: Speed | None, *, is_held: bool) -> int:
    """How many of so many expressions, stale in a partition of so many nodes, a lease names: what a
    worker evaluates within REBUILD_SECONDS, or within the time that it takes to read the nodes, if
    that is longer; MIN_NAMED at least."""
    if speed is None:
        return count
    seconds = max(REBUILD_SECONDS, speed.reading(nodes, is_held=is_held))
    each = nodes * speed.evaluation
    return min(count, max(MIN_NAMED, int(seconds / each))) if each else count


def count(stale: Iterable[Stale]) -> int:
    """How many expressions."""
    return sum(len(item.expressions) for item in stale)


def first(stale: Iterable[Stale], most: int) -> list[Stale]:
    """At most so many of these expressions."""
    found = []
    for item in stale:
        if most <= 0:
            break
        found.append(item._replace(expressions=item.expressions[:most]))
        most -= len(item.expressions)
    return found


def named(stale: list[Stale], kind: Kind, *, is_held: bool) -> tuple[list[Stale], Kind]:
    """The part of what is stale in a partition that its lease names, and what the lease is for.
    `is_held`: by the worker."""
    previews = [item for item in stale if item.is_preview]
    others = [item for item in stale if not item.is_preview]
    if previews and (kind == PREVIEW or not others):
        return previews, PREVIEW
    changed = [item for item in stale if item.base_rev is not None]
    if kind == CHANGE and changed:
        # One changed node costs itself alone: what needs every node waits its turn.
        return changed, CHANGE
    new = [item for item in others if item.base_rev is None and not item.is_forced]
    if kind == DEFINITION and new:
        return new + ([] if is_held else _riders(previews, new)), DEFINITION
    # Without a base the whole partition is due anyway, and the change only makes it come sooner.
    riders = [] if is_held else _riders(previews, others)
    return others + riders, CHANGE if kind == CHANGE else REBUILD


def _riders(previews: list[Stale], others: list[Stale]) -> list[Stale]:
    return first(previews, max(1, count(others) // RIDERS))
