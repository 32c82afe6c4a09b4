"""Matches: results are applied by compare-and-set. What is stale, `staleness` says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tagmill import locks, sql
from tagmill.locks import Lock
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


class Move(NamedTuple):
    """A node's old and new place, by partition and slot."""

    old_partition: int
    old_slot: int
    new_partition: int
    new_slot: int


@dataclass
class Applied:
    """The (expression, partition) that took a result; the other stored matches stay."""

    keys: set[tuple[int, int]] = field(default_factory=set)

    @property
    def expressions(self) -> list[int]:
        return sorted({expression for expression, _ in self.keys})


class _Match(NamedTuple):
    rev: int
    true_at: int
    """The rev that `members` were true at: `rev`, but for forced rebuilds."""
    members: int


# What a match is that was made for nodes that moved in: of no rev.
_MISSING = _Match(-1, -1, 0)


def apply(results: Iterable[Result], capacities: dict[int, int]) -> Applied:
    """Store what is newer than the stored match, and record what changed.

    A full result applies iff the stored rev is lower; a delta iff the stored rev is its base.
    Relies on: the caller has locked the partitions; `capacities` are theirs, in slots.
    """
    wanted = list(results)
    # The collector locks an expression before its matches, and so does this.
    known = _existing({result.expression for result in wanted})
    stored = _locked((result.expression, result.partition) for result in wanted)
    new: dict[tuple[int, int], _Match] = {}
    for result in wanted:
        key = result.expression, result.partition
        before = new.get(key) or stored.get(key)
        members = _combined(before, result)
        if members is not None and result.expression in known:
            new[key] = _Match(result.rev, result.rev, members)
    if new:
        _write(new, capacities)
        _record(stored, new, capacities)
    return Applied(set(new))


def carry(moves: Sequence[Move], capacities: dict[int, int]) -> None:
    """Show moved nodes with the published tags that they had, until their new place is evaluated.

    The new bits are provisional, as the bit of any node is whose documents are newer than a match:
    a match at rev r is right about nodes up to r, and these are newer. Deltas overwrite them, since
    they evaluate every node that is newer than their base, and so do full results; one of an
    evaluation that began before the move takes them back, and the next one is right.
    Relies on: the caller has locked the partitions, and the new slots were never used before.
    """
    names = ("old_partitions", "old_slots", "new_partitions", "new_slots")
    columns = (list(column) for column in zip(*moves, strict=True))
    found = sql.rows(__file__, "carried", dict(zip(names, columns, strict=True))) if moves else []
    # Somebody may have replaced the expression meanwhile, and the collector have taken it.
    known = _existing({expression for expression, _, _ in found})
    carried: dict[tuple[int, int], int] = {}
    for expression, partition, slot in found:
        if expression in known:
            key = expression, partition
            carried[key] = carried.get(key, 0) | 1 << slot
    if not carried:
        return
    stored = _locked(carried)
    new = {
        key: stored.get(key, _MISSING)._replace(members=stored.get(key, _MISSING).members | bits)
        for key, bits in carried.items()
    }
    values = {
        "expressions": [expression for expression, _ in new],
        "partitions": [partition for _, partition in new],
        "members": [
            bitmap.to_bytes(match.members, capacities[partition])
            for (_, partition), match in new.items()
        ],
    }
    sql.run_binary(__file__, "carry_matches", values)
    _record(stored, new, capacities)


def _existing(expressions: set[int]) -> set[int]:
    """Those expressions that still exist, kept from the collector until the transaction ends."""
    values = {"expressions": sorted(expressions)}
    found = locks.query(Lock.EXPRESSION, __file__, "hold_expressions", values)
    return {row[0] for row in found}


def _locked(keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], _Match]:
    """The stored matches of these (expression, partition), locked, and maybe others."""
    wanted = set(keys)
    values = {
        "partitions": sorted({partition for _, partition in wanted}),
        "expressions": sorted({expression for expression, _ in wanted}),
    }
    if not locks.query(Lock.MATCH, __file__, "lock_matches", values):
        return {}
    return {
        (expression, partition): _Match(rev, true_at, bitmap.from_bytes(members))
        for expression, partition, rev, true_at, members in sql.rows(
            __file__, "locked_matches", values
        )
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


def _write(new: dict[tuple[int, int], _Match], capacities: dict[int, int]) -> None:
    sql.run_binary(
        __file__,
        "apply_matches",
        {
            "expressions": [expression for expression, _ in new],
            "partitions": [partition for _, partition in new],
            "revs": [match.rev for match in new.values()],
            "members": [
                bitmap.to_bytes(match.members, capacities[partition])
                for (_, partition), match in new.items()
            ],
        },
    )


def _record(
    stored: dict[tuple[int, int], _Match],
    new: dict[tuple[int, int], _Match],
    capacities: dict[int, int],
) -> None:
    """One row for each match whose members changed."""
    rows: list[tuple[Any, ...]] = []
    for (expression, partition), match in new.items():
        before = stored.get((expression, partition))
        old = before.members if before else 0
        if old == match.members:
            continue
        added, removed = (
            bitmap.to_bytes(bits, capacities[partition])
            for bits in (match.members & ~old, old & ~match.members)
        )
        from_rev = before.true_at if before and before.true_at >= 0 else None
        # What moved in changes a match without evaluating it: it stays true as of the same rev.
        rows.append((expression, partition, from_rev, match.true_at, added, removed))
    if rows:
        names = ("expressions", "partitions", "from_revs", "to_revs", "added", "removed")
        columns = (list(column) for column in zip(*rows, strict=True))
        sql.run_binary(__file__, "record_changes", dict(zip(names, columns, strict=True)))
