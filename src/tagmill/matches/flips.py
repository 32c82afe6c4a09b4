"""Members that change: stored, and recorded in the audit trail.

And rule 1 of `matches` where that is all there is to do: verdicts on changed slots, for all
settled matches of a partition at once. What they leave as it is, is neither locked nor written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tagmill import locks, sql
from tagmill.locks import Lock
from tagmill.matches import comparing
from tagmill.matches.comparing import Changed, Flip
from tagmill_wire import bitmap


class Places(Protocol):
    def __getitem__(self, partition: int, /) -> Place: ...


class Place(Protocol):
    """A partition that the caller has locked."""

    capacity: int
    settled_rev: int


class Change(NamedTuple):
    """Other members of a match. `from_rev`: what they were true at; None: it is new."""

    expression: int
    partition: int
    from_rev: int | None
    to_rev: int
    flip: Flip


class Evaluated(NamedTuple):
    """Verdicts on changed slots, and the rev at which they are true."""

    rev: int
    changed: Changed


class Settled(NamedTuple):
    """`taken`: the expressions that took their verdict, by partition. `version`: of what was live
    then."""

    taken: dict[int, set[int]]
    version: str


def settle(found: Mapping[int, Evaluated], places: Places, named: str) -> Settled | None:
    """Rule 1 in all of these partitions, for results of the incarnation `named`. None, and nothing
    is changed, where more is to be done in any of them: then every match is looked at. Raises
    IncarnationChanged. Relies on: the partitions are locked; `settled_rev` is moved in memory, as
    by `matches.apply_held`."""
    for partition, (rev, changed) in found.items():
        if not changed.base == places[partition].settled_rev < rev:
            return None
    if not found:
        return None
    changed_of = {partition: item.changed for partition, item in found.items()}
    differences = comparing.differing(changed_of, named)
    for difference in differences.values():
        if difference.has_bare or difference.has_fresh or not difference.answered:
            return None
    changes = []
    for partition, difference in differences.items():
        rev, changed = found[partition]
        places[partition].settled_rev = rev
        changes += [
            Change(expression, partition, changed.base, rev, flip)
            for expression, flip in difference.flips.items()
        ]
    show(changes, places)
    taken = {partition: set(difference.answered) for partition, difference in differences.items()}
    return Settled(taken, next(iter(differences.values())).version)


def show(changes: Sequence[Change], places: Places) -> None:
    """Store the bits of changed nodes in matches, sorted as everybody locks them. What a match is
    true at stays: a settled one follows `settled_rev`, by rule 1; in one that is behind the bits
    are provisional, as those of `matches.carry`: until it is evaluated, readers see these nodes as
    they are. Relies on: the members were read under the partitions' locks, which are still held."""
    if not changes:
        return
    values = {
        "expressions": [change.expression for change in changes],
        "partitions": [change.partition for change in changes],
        "members": [_members(change.flip.after, change, places) for change in changes],
    }
    locks.taking(Lock.MATCH)
    sql.run_binary(__file__, "flip_members", values)
    record(changes, places)


def record(changes: Iterable[Change], places: Places) -> None:
    """The audit trail: a row for each match whose members differ."""
    differing = [change for change in changes if change.flip.before != change.flip.after]
    if not differing:
        return
    values = {
        "expressions": [change.expression for change in differing],
        "partitions": [change.partition for change in differing],
        "from_revs": [change.from_rev for change in differing],
        "to_revs": [change.to_rev for change in differing],
        "added": [
            _members(change.flip.after & ~change.flip.before, change, places)
            for change in differing
        ],
        "removed": [
            _members(change.flip.before & ~change.flip.after, change, places)
            for change in differing
        ],
    }
    sql.run_binary(__file__, "record_changes", values)


def _members(bits: int, change: Change, places: Places) -> bytes:
    return bitmap.to_bytes(bits, places[change.partition].capacity)
