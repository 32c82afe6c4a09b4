"""New verdicts beside what is stored: which matches of a partition they change.

Most verdicts change nothing. So they are compared for all expressions at once: the verdicts on one
document, and what is stored of one slot, are each a number with a byte for every expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from tagmill import sql
from tagmill_wire import bitmap


class Verdicts(Protocol):
    """What some expressions are on some documents, which are known by their positions."""

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


class Difference(NamedTuple):
    """What verdicts change in a partition. `quiet`: how many settled matches they leave as they
    are; `flips`: the members of those that they change, and `others`, of matches that are behind by
    a rev of their own. `has_bare`: a settled match has no verdict. `has_fresh`: a verdict is of a
    match that is true at the rev before, by a rev of its own."""

    version: str
    quiet: int
    flips: dict[int, int]
    others: dict[int, int]
    has_bare: bool
    has_fresh: bool

    @property
    def answered(self) -> int:
        return self.quiet + len(self.flips)


class _Stored(NamedTuple):
    """The matches of a partition that verdicts may change: three lists in one order, or None."""

    partition: int
    rev: int
    version: str
    expressions: Sequence[int] | None
    revs: Sequence[int | None] | None
    members: Sequence[bytes] | None


def differing(
    changed: Mapping[int, Slots], verdicts: Mapping[int, Verdicts]
) -> dict[int, Difference]:
    """Compare, in each partition, the verdicts on its changed slots with what is stored. Relies on:
    the partitions are locked, and their revs not raised yet."""
    values = {"partitions": sorted(changed)}
    found = sql.bound(_Stored, __file__, "stored_members", values)
    return {
        row.partition: _difference(row, changed[row.partition], verdicts[row.partition])
        for row in sorted(found)
    }


def _difference(stored: _Stored, changed: Slots, verdicts: Verdicts) -> Difference:
    expressions, revs = stored.expressions or (), stored.revs or ()
    rev_of = dict(zip(expressions, revs, strict=True))
    members_of = dict(zip(expressions, stored.members or (), strict=True))
    flips: dict[int, int] = {}
    others: dict[int, int] = {}
    # In the order in which everybody locks matches.
    for key in sorted(_unlike(verdicts, members_of, changed)):
        chosen = flips if rev_of[key] is None else others
        chosen[key] = bitmap.from_bytes(members_of[key])
    settled = {key for key, rev in rev_of.items() if rev is None}
    answered = rev_of.keys() & set(verdicts.ids)
    return Difference(
        stored.version,
        len(settled & answered) - len(flips),
        flips,
        others,
        has_bare=not settled <= answered,
        has_fresh=any(rev_of[key] == stored.rev for key in answered - settled),
    )


def _unlike(verdicts: Verdicts, members_of: Mapping[int, bytes], changed: Slots) -> Iterator[int]:
    """The expressions whose stored members differ from the verdicts on any of the slots."""
    # One that has no match yet is like one without members, and is not stored here.
    size = max(map(len, members_of.values()), default=0)
    nothing = bytes(size)
    stored = b"".join(members_of.get(key, nothing).ljust(size, b"\0") for key in verdicts.ids)
    ones = int.from_bytes(b"\1" * len(verdicts.ids), "little")
    unlike = 0
    for slot, position in zip(changed.slots, changed.positions, strict=True):
        place, bit = divmod(slot, 8)
        members = 0
        if place < size:
            members = int.from_bytes(stored[place::size], "little") >> bit & ones
        unlike |= members ^ (0 if position is None else verdicts.column(position))
    if unlike:
        for key, byte in zip(
            verdicts.ids, unlike.to_bytes(len(verdicts.ids), "little"), strict=True
        ):
            if byte and key in members_of:
                yield key
