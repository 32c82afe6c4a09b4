"""What a completion says, checked and unpacked: by expression, or by bitmaps over a set of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import structlog
from msgspec import UNSET, UnsetType

from tagmill.errors import Invalid
from tagmill.fleet import incarnation
from tagmill.matches import expression_sets, matches
from tagmill.matches.comparing import Changed, Slots
from tagmill.matches.expression_sets import ExpressionSet
from tagmill.matches.flips import Evaluated
from tagmill_wire import bitmap
from tagmill_wire.messages import Completion, MatchResult, PartitionResult

log = structlog.get_logger("tagmill.completions")

T = TypeVar("T")

# Results of one completion that name a set: a few bytes of one say something of each of its
# expressions. As many as one lease has partitions at most.
MAX_BY_SET = 256


class Place(Protocol):
    """A partition that is locked."""

    id: int
    rev: int
    capacity: int
    next_slot: int


@dataclass
class Answered:
    """A result, and what its bitmaps over a set say. `deltas`: the expressions with their bases;
    `holds`: for each changed slot the positions in the set whose expressions hold on it; `empty`:
    the expressions that hold nowhere. `path`: where it is in the message."""

    part: PartitionResult
    path: str
    positions: dict[int, int] = field(default_factory=dict)
    deltas: dict[int, int] = field(default_factory=dict)
    holds: dict[int, int] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)

    @property
    def expressions(self) -> list[int]:
        """Whatever it has verdicts for."""
        named = [match.expression for match in self.part.matches]
        return [*named, *self.deltas, *self.empty]

    @property
    def full(self) -> set[int]:
        """What was evaluated on every node."""
        whole = {match.expression for match in self.part.matches if match.base_rev is None}
        return whole.union(self.empty)

    def by_slots(self, partition: Place) -> Evaluated | None:
        """All that it says, where that is of changed slots and of one base. Raises Invalid."""
        bases = set(self.deltas.values())
        if self.part.matches or self.empty or len(bases) != 1:
            return None
        self._check(partition)
        # Slots that nobody has been given yet hold no node.
        positions = [slot if slot < partition.next_slot else None for slot in self.holds]
        slots = Slots(list(self.holds), positions)
        # A changed slot's position is its own number.
        verdicts = _OfSlots(list(self.deltas), self.positions, self.holds)
        return Evaluated(self.part.rev, Changed(bases.pop(), slots, verdicts))

    def results(self, partition: Place) -> list[matches.Result]:
        """Raises Invalid."""
        part, path = self.part, self.path
        self._check(partition)
        # Slots that nobody has been given yet hold no node.
        taken = (1 << partition.next_slot) - 1
        found = [
            _result(match, part.rev, partition, taken, f"{path}.matches[{number}]")
            for number, match in enumerate(part.matches)
        ]
        members = dict.fromkeys((self.positions[key] for key in self.deltas), 0)
        for slot, holds in self.holds.items():
            for position in bitmap.slots(holds):
                members[position] |= 1 << slot
        evaluated = bitmap.from_slots(self.holds)
        for key, base in self.deltas.items():
            bits = members[self.positions[key]] & taken
            found.append(matches.Result(key, partition.id, part.rev, bits, base, evaluated))
        found += [matches.Result(key, partition.id, part.rev, 0) for key in self.empty]
        return found

    def _check(self, partition: Place) -> None:
        rev = self.part.rev
        if rev > partition.rev:
            log.error(
                incarnation.AHEAD,
                action="rev_ahead",
                partition=partition.id,
                at=partition.rev,
                rev=rev,
            )
        if not 0 <= rev <= partition.rev:
            raise Invalid(
                f"partition {partition.id} is at rev {partition.rev}, not {rev}",
                field=f"{self.path}.rev",
            )
        if any(slot >= partition.capacity for slot in self.holds):
            raise Invalid(
                f"partition {partition.id} has {partition.capacity} slots",
                field=f"{self.path}.changed",
            )


class _OfSlots:
    """The verdicts of expressions of a set on slots, which are positions here. `positions`: of all
    of the set; `holds`: by slot, as bitmaps over the set."""

    def __init__(
        self, ids: Sequence[int], positions: Mapping[int, int], holds: Mapping[int, int]
    ) -> None:
        self.ids = ids
        self._size = len(positions)
        # Mostly these are all of the set, in its order.
        self._is_part = len(ids) < len(positions)
        self._places = [positions[key] for key in ids] if self._is_part else []
        self._holds = holds

    def column(self, position: int) -> int:
        # A digit for each expression of the set, the first one last.
        digits = f"{self._holds[position]:0{self._size}b}".encode()
        flags = digits[::-1].translate(_FLAGS)
        if self._is_part:
            flags = bytes(flags[place] for place in self._places)
        return int.from_bytes(flags, "little")


_FLAGS = bytes.maketrans(b"01", b"\0\1")


def read(completion: Completion) -> list[Answered]:
    """The results in their order. Raises Invalid, UnknownExpressionSet."""
    named = [part.set for part in completion.results if part.set is not UNSET]
    if len(named) > MAX_BY_SET:
        raise Invalid(f"{MAX_BY_SET} results at most name a set", field="results")
    sets = expression_sets.of(set(named)) if named else {}
    return [
        _read(part, sets, f"results[{number}]") for number, part in enumerate(completion.results)
    ]


def _read(part: PartitionResult, sets: dict[str, ExpressionSet], path: str) -> Answered:
    if part.set is UNSET:
        given = {"deltas": part.deltas, "changed": part.changed, "empty": part.empty}
        for name, value in given.items():
            if value is not UNSET:
                raise Invalid("name the `set` that it is over", field=f"{path}.{name}")
        return Answered(part, path)
    order = sets[part.set].order
    found = Answered(part, path, order.positions)
    changed = 0
    for number, group in enumerate(_or_none(part.deltas)):
        place = f"{path}.deltas[{number}]"
        if group.base_rev is None:
            raise Invalid("a delta has a base_rev", field=f"{place}.base_rev")
        bits = _decoded(order.decode, group.which, f"{place}.which")
        if bits & changed:
            raise Invalid("an expression has one base", field=f"{place}.which")
        changed |= bits
        found.deltas.update(dict.fromkeys(order.expressions(bits), group.base_rev))
    for number, item in enumerate(_or_none(part.changed)):
        place = f"{path}.changed[{number}]"
        if item.slot < 0 or item.slot in found.holds:
            raise Invalid("each slot is named once", field=f"{place}.slot")
        found.holds[item.slot] = _decoded(order.decode, item.holds, f"{place}.holds")
        if found.holds[item.slot] & ~changed:
            raise Invalid("a verdict of an expression without a base", field=f"{place}.holds")
    if part.empty is not UNSET:
        bits = _decoded(order.decode, part.empty, f"{path}.empty")
        if bits & changed:
            raise Invalid("an expression is among the deltas", field=f"{path}.empty")
        found.empty = order.expressions(bits)
    return found


def _or_none(items: Sequence[T] | UnsetType) -> Sequence[T]:
    return () if isinstance(items, UnsetType) else items


def _result(
    match: MatchResult, rev: int, partition: Place, taken: int, path: str
) -> matches.Result:
    if (match.base_rev is None) != (match.evaluated is None):
        raise Invalid("a delta has both base_rev and evaluated", field=path)
    evaluated = None
    slots = partial(bitmap.decode, capacity=partition.capacity)
    if match.evaluated is not None:
        evaluated = _decoded(slots, match.evaluated, f"{path}.evaluated")
    members = _decoded(slots, match.members, f"{path}.members") & taken
    return matches.Result(match.expression, partition.id, rev, members, match.base_rev, evaluated)


def _decoded(decode: Callable[[T], int], text: T, path: str) -> int:
    try:
        return decode(text)
    except ValueError as error:
        raise Invalid(str(error), field=path) from None
