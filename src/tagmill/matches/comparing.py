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


class Changed(NamedTuple):
    """Verdicts on changed slots of a partition. `base`: the rev at which the other slots are as
    they were."""

    base: int
    slots: Slots
    verdicts: Verdicts


class Flip(NamedTuple):
    """The members of a match before and after."""

    before: int
    after: int


class Difference(NamedTuple):
    """What verdicts change in a partition. `answered`: the expressions of settled matches that have
    a verdict; `flips`: those of them whose members change, and `others`, of matches that have a rev
    of their own. `has_bare`: a settled match has no verdict. `has_fresh`: a verdict is of a match
    that is true at the base, by a rev of its own. `version`: of what is live now, if asked for."""

    version: str | None
    answered: set[int]
    flips: dict[int, Flip]
    others: dict[int, Flip]
    has_bare: bool
    has_fresh: bool


class _Stored(NamedTuple):
    """The matches of a partition that verdicts may change: three lists in one order, or None."""

    partition: int
    version: str | None
    expressions: Sequence[int] | None
    revs: Sequence[int | None] | None
    members: Sequence[bytes] | None


def differing(changed: Mapping[int, Changed], *, live: bool) -> dict[int, Difference]:
    """Compare, in each partition, the verdicts on its changed slots with what is stored. `live`:
    also with matches that are behind, and what is live now is asked for. Relies on: the partitions
    are locked, and neither their revs nor `settled_rev` raised yet."""
    partitions = sorted(changed)
    bases = [changed[item].base for item in partitions]
    values = {"partitions": partitions, "bases": bases, "live": live}
    found = {row.partition: row for row in sql.bound(_Stored, __file__, "stored_members", values)}
    return {item: _difference(found[item], changed[item]) for item in partitions}


def _difference(stored: _Stored, changed: Changed) -> Difference:
    expressions, revs = stored.expressions or (), stored.revs or ()
    rev_of = dict(zip(expressions, revs, strict=True))
    members_of = dict(zip(expressions, stored.members or (), strict=True))
    flips: dict[int, Flip] = {}
    others: dict[int, Flip] = {}
    # In the order in which everybody locks matches.
    for key, flip in sorted(_flips(changed, members_of)):
        chosen = flips if rev_of[key] is None else others
        chosen[key] = flip
    settled = {key for key, rev in rev_of.items() if rev is None}
    answered = rev_of.keys() & set(changed.verdicts.ids)
    return Difference(
        stored.version,
        settled & answered,
        flips,
        others,
        has_bare=not settled <= answered,
        has_fresh=any(rev_of[key] == changed.base for key in answered - settled),
    )


def _flips(changed: Changed, members_of: Mapping[int, bytes]) -> Iterator[tuple[int, Flip]]:
    """The expressions whose stored members differ from the verdicts on any of the slots."""
    ids, (slots, positions) = changed.verdicts.ids, changed.slots
    # One that has no match yet is like one without members, and is not stored here.
    size = max(map(len, members_of.values()), default=0)
    nothing = bytes(size)
    stored = b"".join(members_of.get(key, nothing).ljust(size, b"\0") for key in ids)
    ones = int.from_bytes(b"\1" * len(ids), "little")
    unlike = 0
    columns = []
    for slot, position in zip(slots, positions, strict=True):
        place, bit = divmod(slot, 8)
        members = 0
        if place < size:
            members = int.from_bytes(stored[place::size], "little") >> bit & ones
        column = 0 if position is None else changed.verdicts.column(position)
        unlike |= members ^ column
        columns.append(column)
    if not unlike:
        return
    holds = [column.to_bytes(len(ids), "little") for column in columns]
    mask = bitmap.from_slots(slots)
    for nth, differs in enumerate(unlike.to_bytes(len(ids), "little")):
        if differs and ids[nth] in members_of:
            before = bitmap.from_bytes(members_of[ids[nth]])
            held = (slot for slot, column in zip(slots, holds, strict=True) if column[nth])
            yield ids[nth], Flip(before, before & ~mask | bitmap.from_slots(held))
