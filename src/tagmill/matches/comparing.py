"""New verdicts beside what is stored: which matches of a partition they change.

Most verdicts change nothing. So they are compared for all expressions at once: the verdicts on one
document, and what is stored of one slot, are each a number with a byte for every expression.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from tagmill import sql
from tagmill.fleet import incarnation
from tagmill_wire import bitmap


class Verdicts(Protocol):
    """What some expressions are on some documents, which are known by their positions. `ids`: the
    expressions, ascending."""

    @property
    def ids(self) -> Sequence[int]: ...

    def column(self, position: int) -> int:
        """The expressions in their order, each in a byte, the first one lowest: 1 where it holds on
        the document."""


class Slots(NamedTuple):
    """The slots of a partition whose verdicts may change, and the positions of their documents
    (None: it has none, and no expression holds)."""

    slots: Sequence[int]
    positions: Sequence[int | None]


class Changed(NamedTuple):
    """Verdicts on changed slots of a partition. `base`: the rev at which the other slots are as
    they were."""

    base: int
    slots: Slots
    verdicts: Verdicts

    @property
    def first(self) -> int:
        """The first byte of a bitmap that has one of these slots."""
        return min(self.slots.slots, default=0) // 8

    @property
    def size(self) -> int:
        return max(self.slots.slots, default=0) // 8 + 1 - self.first


class Flip(NamedTuple):
    """The members of a match before and after."""

    before: int
    after: int


class Difference(NamedTuple):
    """What verdicts change in a partition. `answered`: the expressions of settled matches that have
    a verdict; `flips`: those of them whose members change, and `others`, of matches that have a rev
    of their own. `has_bare`: a settled match has no verdict. `has_fresh`: a verdict is of a match
    that is true at the base, by a rev of its own. `version`: of what is live now."""

    version: str
    answered: Collection[int]
    flips: dict[int, Flip]
    others: dict[int, Flip]
    has_bare: bool
    has_fresh: bool


class _Stored(NamedTuple):
    """What is stored of a partition, None where there is nothing. `settled`: the expressions of its
    settled matches, eight bytes each, ascending, and `pieces` their members, between the changed
    slots. The others' are whole, in lists of one order."""

    partition: int
    version: str
    incarnation: str | None
    settled: bytes | None
    pieces: bytes | None
    expressions: Sequence[int] | None
    revs: Sequence[int] | None
    members: Sequence[bytes] | None


class _Whole(NamedTuple):
    partition: int
    expression: int
    members: bytes


class _Columns(NamedTuple):
    """The verdicts on each changed slot."""

    ids: Sequence[int]
    slots: Sequence[int]
    numbers: Sequence[int]

    def after(self, nth: int, before: int) -> int:
        """The members of the nth expression."""
        for slot, number in zip(self.slots, self.numbers, strict=True):
            before = before & ~(1 << slot) | (number >> 8 * nth & 1) << slot
        return before


def differing(changed: Mapping[int, Changed], named: str | None = None) -> dict[int, Difference]:
    """Compare, in each partition, the verdicts on its changed slots with what is stored. `named`:
    the incarnation that revs and verdicts are of; None: this transaction has found them, and they
    are compared with live matches that are behind, too. Raises IncarnationChanged. Relies on: the
    partitions are locked, and neither their revs nor `settled_rev` raised yet; what declares a new
    incarnation waits for them, or is seen here."""
    partitions = sorted(changed)
    values = {
        "partitions": partitions,
        "bases": [changed[item].base for item in partitions],
        "firsts": [changed[item].first for item in partitions],
        "sizes": [changed[item].size for item in partitions],
        "live": named is None,
    }
    found = sql.bound(_Stored, __file__, "stored_members", values)
    if named is not None and any(row.incarnation != named for row in found):
        raise incarnation.changed()
    columns = {item: _columns(changed[item]) for item in partitions}
    differences: dict[int, Difference] = {}
    unlike: dict[tuple[int, int], int] = {}
    for row in sorted(found, key=lambda row: row.partition):
        difference, flipped = _difference(row, changed[row.partition], columns[row.partition])
        differences[row.partition] = difference
        unlike |= {(row.partition, key): nth for key, nth in flipped.items()}
    for match, nth in _whole(unlike):
        before = bitmap.from_bytes(match.members)
        flip = Flip(before, columns[match.partition].after(nth, before))
        differences[match.partition].flips[match.expression] = flip
    return differences


def _columns(changed: Changed) -> _Columns:
    verdicts, (slots, positions) = changed.verdicts, changed.slots
    numbers = [0 if position is None else verdicts.column(position) for position in positions]
    return _Columns(verdicts.ids, slots, numbers)


def _whole(unlike: Mapping[tuple[int, int], int]) -> Iterator[tuple[_Whole, int]]:
    """The matches of these (partition, expression), in the order in which everybody locks them,
    with what is said of them."""
    if unlike:
        partitions, expressions = zip(*sorted(unlike), strict=True)
        values = {"partitions": list(partitions), "expressions": list(expressions)}
        for row in sql.bound(_Whole, __file__, "whole_members", values):
            yield row, unlike[row.partition, row.expression]


def _difference(
    stored: _Stored, changed: Changed, columns: _Columns
) -> tuple[Difference, dict[int, int]]:
    """What is to be said without the members of settled matches that flip; and these, each with its
    number among the verdicts."""
    ids, packed = columns.ids, stored.settled or b""
    pieces, has_bare = stored.pieces or b"", False
    answered: Collection[int] = ids
    if packed != struct.pack(f">{len(ids)}q", *ids):
        settled = struct.unpack(f">{len(packed) // 8}q", packed)
        size, nothing = changed.size, bytes(changed.size)
        of = {key: pieces[nth * size : (nth + 1) * size] for nth, key in enumerate(settled)}
        answered = of.keys() & set(ids)
        has_bare = len(answered) < len(of)
        # One that has no match yet is like one without members, and is not stored here.
        pieces = b"".join(of.get(key, nothing) for key in ids)
    unlike = _unlike(pieces, changed, columns)
    flipped = {
        ids[nth]: nth
        for nth, byte in enumerate(unlike.to_bytes(len(ids), "little") if unlike else b"")
        if byte and ids[nth] in answered
    }
    others, has_fresh = _others(stored, changed, columns)
    return Difference(stored.version, answered, {}, others, has_bare, has_fresh), flipped


def _unlike(pieces: bytes, changed: Changed, columns: _Columns) -> int:
    """A byte for each expression, other than 0 where its members differ on any of the slots."""
    first, size = changed.first, changed.size
    ones = int.from_bytes(b"\1" * len(columns.ids), "little")
    unlike = 0
    for slot, number in zip(columns.slots, columns.numbers, strict=True):
        place, bit = divmod(slot, 8)
        unlike |= int.from_bytes(pieces[place - first :: size], "little") >> bit & ones ^ number
    return unlike


def _others(stored: _Stored, changed: Changed, columns: _Columns) -> tuple[dict[int, Flip], bool]:
    """What flips of matches that have a rev of their own; and whether one of them has a verdict,
    and is true at the base."""
    if not stored.expressions:
        return {}, False
    places = {key: nth for nth, key in enumerate(columns.ids)}
    found, has_fresh = {}, False
    rows = zip(stored.expressions, stored.revs or (), stored.members or (), strict=True)
    # In the order in which everybody locks matches.
    for key, rev, members in sorted(rows):
        if key in places:
            has_fresh |= rev == changed.base
            before = bitmap.from_bytes(members)
            after = columns.after(places[key], before)
            if after != before:
                found[key] = Flip(before, after)
    return found, has_fresh
