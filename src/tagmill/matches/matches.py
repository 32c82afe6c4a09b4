"""Matches: results are applied by compare-and-set. What is stale, `staleness` says.

Most matches are settled: they have no rev of their own, and are true at their partition's
`settled_rev`. The rules, all under the partition's lock:

1. A result for changed slots whose base is `settled_rev` moves it to the result's rev; of the
   settled matches only those whose members differ are written.
2. A settled match that the result says nothing of is unsettled first: it keeps the old rev as its
   own. Where that were more matches than the result has, the results get revs of their own instead.
3. A full result at `settled_rev` settles its match. A delta does not: uploads settle here without
   that expression, and would unsettle it again each time.
4. A forced rebuild unsettles (`force_matches`), as a match that is made for nodes that moved in has
   a rev of its own (`carry`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tagmill import locks, sql
from tagmill.locks import Lock
from tagmill.matches import flips
from tagmill.matches.comparing import Flip
from tagmill.matches.flips import Change, Place, Places
from tagmill_wire import bitmap


@dataclass(frozen=True)
class Result:
    """One evaluation. Bitmaps are ints (tagmill_wire.bitmap). Full: without the last two."""

    expression: int
    partition: int
    rev: int
    members: int
    base_rev: int | None = None
    evaluated: int | None = None


class Carried(NamedTuple):
    """A bit that a moving node takes along."""

    expression: int
    partition: int
    slot: int


class Move(NamedTuple):
    """A node's old and new place, by partition and slot."""

    old_partition: int
    old_slot: int
    new_partition: int
    new_slot: int


@dataclass
class Applied:
    """The expressions that took a result, by partition; the other stored matches stay."""

    by_partition: dict[int, set[int]] = field(default_factory=dict)

    def of(self, partition: int) -> set[int]:
        return self.by_partition.get(partition, set())


class _Match(NamedTuple):
    rev: int
    """What it counts as: its own, or the partition's `settled_rev`."""
    true_at: int
    """The rev that `members` were true at: `rev`, but for forced rebuilds."""
    members: int
    is_settled: bool = False


class _Stored(NamedTuple):
    expression: int
    partition: int
    rev: int
    true_at: int
    members: bytes
    is_settled: bool


_Key = tuple[int, int]
_Matches = dict[_Key, _Match]
"""By (expression, partition)."""

# What a match is that was made for nodes that moved in: of no rev.
_MISSING = _Match(-1, -1, 0)


def apply(
    results: Iterable[Result], places: Mapping[int, Place], known: set[int] | None = None
) -> Applied:
    """As `apply_held`, and what it moves is stored."""
    with moving(places):
        return apply_held(results, places, known)


@contextlib.contextmanager
def moving(places: Mapping[int, Place]) -> Iterator[None]:
    """Stores what settled matches are true at, where it is moved inside."""
    before = {partition: place.settled_rev for partition, place in places.items()}
    yield
    moved = {
        partition: place.settled_rev
        for partition, place in places.items()
        if place.settled_rev != before[partition]
    }
    if moved:
        values = {"partitions": list(moved), "revs": list(moved.values())}
        sql.run_binary(__file__, "move_settled", values)


def apply_held(results: Iterable[Result], places: Places, known: set[int] | None = None) -> Applied:
    """Store what is newer than the stored match, and record what changed.

    A full result applies iff the stored rev is lower; a delta iff the stored rev is its base. In
    the order given, but partition by partition.
    `known`: the expressions that exist, where the caller keeps them from the collector already.
    Relies on: the caller has locked the partitions; `places` are theirs. Their `settled_rev` is
    moved in memory, and the caller stores it with the rev that it raises.
    """
    # The collector locks matches by partition, too.
    wanted = sorted(results, key=lambda result: result.partition)
    # The collector locks an expression before its matches, and so does this. A delta makes no
    # match: where the collector was first, there is none that it could apply to.
    full = {result.expression for result in wanted if result.base_rev is None}
    if known is None:
        known = hold(full) if full else set()
    gone = full - known
    wanted = [result for result in wanted if result.expression not in gone]
    stored = _locked(
        ((result.expression, result.partition) for result in wanted),
        {item.partition for item in wanted if item.rev > places[item.partition].settled_rev},
    )
    new = dict(stored)
    applied = Applied()
    for (partition, rev), group in itertools.groupby(
        wanted, lambda item: (item.partition, item.rev)
    ):
        taken = _take(new, group)
        if taken:
            applied.by_partition.setdefault(partition, set()).update(key for key, _ in taken)
        _settle(new, taken, partition, rev, places[partition])
    if applied.by_partition:
        _write(
            {key: match for key, match in new.items() if _differs(stored.get(key), match)}, places
        )
        _record(stored, new, places)
    return applied


def _take(new: _Matches, group: Iterable[Result]) -> dict[_Key, bool]:
    """Put those results of one partition and one rev that apply into `new`; which ones, and whether
    they are full."""
    taken = {}
    for result in group:
        key = result.expression, result.partition
        members = _combined(new.get(key), result)
        if members is not None:
            new[key] = _Match(result.rev, result.rev, members)
            taken[key] = result.base_rev is None
    return taken


def _settle(
    new: _Matches, taken: Mapping[_Key, bool], partition: int, rev: int, place: Place
) -> None:
    """Rules 1 to 3, after results at `rev` were taken."""
    if rev > place.settled_rev:
        left = [key for key, match in new.items() if match.is_settled and key[1] == partition]
        if len(taken) < max(1, len(left)):
            return
        for key in left:
            new[key] = new[key]._replace(is_settled=False)
        place.settled_rev = rev
        joining = set(taken)
    else:
        # What comes as a delta, when the others were settled without it, will do so next time, too.
        joining = {key for key, is_full in taken.items() if is_full}
    if rev == place.settled_rev:
        for key in joining:
            new[key] = new[key]._replace(is_settled=True)


def _differs(before: _Match | None, match: _Match) -> bool:
    """Whether its row does. A settled one has no rev."""
    if before is None or before.is_settled != match.is_settled:
        return True
    if match.is_settled:
        return before.members != match.members
    return before != match


def carried(moves: Sequence[Move]) -> list[Carried]:
    """The bits that nodes which move take along. They are looked at again by `carry`."""
    names = ("old_partitions", "old_slots", "new_partitions", "new_slots")
    columns = (list(column) for column in zip(*moves, strict=True))
    values = dict(zip(names, columns, strict=True))
    return sql.named(Carried, __file__, "carried", values) if moves else []


def carry(found: Sequence[Carried], known: set[int], places: Places) -> None:
    """Show moved nodes with the published tags that they had, until their new place is evaluated.

    The new bits are provisional, as the bit of any node is whose documents are newer than a match:
    a match at rev r is right about nodes up to r, and these are newer. Deltas overwrite them, since
    they evaluate every node that is newer than their base, and so do full results; one of an
    evaluation that began before the move takes them back, and the next one is right. `known`: the
    expressions that exist, kept from the collector (`hold`).
    Relies on: the caller has locked the partitions, and the new slots were never used before.
    """
    bits_of: dict[_Key, int] = {}
    # Somebody may have replaced the expression meanwhile, and the collector have taken it.
    for expression, partition, slot in found:
        if expression in known:
            key = expression, partition
            bits_of[key] = bits_of.get(key, 0) | 1 << slot
    if not bits_of:
        return
    stored = _locked(bits_of)
    new = {
        key: stored.get(key, _MISSING)._replace(members=stored.get(key, _MISSING).members | bits)
        for key, bits in bits_of.items()
    }
    sql.run_binary(__file__, "carry_matches", _columns(new, places))
    _record(stored, new, places)


def hold(expressions: set[int]) -> set[int]:
    """Those expressions that still exist, kept from the collector until the transaction ends."""
    values = {"expressions": sorted(expressions)}
    return set(locks.bound(Lock.EXPRESSION, int, __file__, "hold_expressions", values))


def _locked(keys: Iterable[_Key], advancing: Iterable[int] = ()) -> _Matches:
    """The stored matches of these (expression, partition), and all settled ones of the partitions
    where `settled_rev` may move, locked; and maybe others."""
    wanted = set(keys)
    values = {
        "partitions": sorted({partition for _, partition in wanted}),
        "expressions": sorted({expression for expression, _ in wanted}),
        "advancing": sorted(advancing),
    }
    found = locks.bound(Lock.MATCH, _Stored, __file__, "lock_matches", values)
    return {
        (row.expression, row.partition): _Match(
            row.rev, row.true_at, bitmap.from_bytes(row.members), row.is_settled
        )
        for row in found
    }


def _combined(before: _Match | None, result: Result) -> int | None:
    """The members after the result; None when it does not apply."""
    if result.base_rev is None or result.evaluated is None:
        return result.members if before is None or before.rev < result.rev else None
    # During a forced rebuild (rev -1) what is stored is no base for anything.
    if before is None or before.rev < 0:
        return None
    if before.rev != result.base_rev or before.rev >= result.rev:
        return None
    return (before.members & ~result.evaluated) | (result.members & result.evaluated)


def _write(rows: _Matches, places: Places) -> None:
    if not rows:
        return
    revs = [None if match.is_settled else match.rev for match in rows.values()]
    sql.run_binary(__file__, "apply_matches", {**_columns(rows, places), "revs": revs})


def _columns(rows: _Matches, places: Places) -> dict[str, list[Any]]:
    return {
        "expressions": [expression for expression, _ in rows],
        "partitions": [partition for _, partition in rows],
        "members": [
            bitmap.to_bytes(match.members, places[partition].capacity)
            for (_, partition), match in rows.items()
        ],
    }


def _record(stored: _Matches, new: _Matches, places: Places) -> None:
    """One row for each match whose members changed."""
    changes = []
    for (expression, partition), match in new.items():
        before = stored.get((expression, partition))
        from_rev = before.true_at if before and before.true_at >= 0 else None
        # What moved in changes a match without evaluating it: it stays true as of the same rev.
        flip = Flip(before.members if before else 0, match.members)
        changes.append(Change(expression, partition, from_rev, match.true_at, flip))
    flips.record(changes, places)
