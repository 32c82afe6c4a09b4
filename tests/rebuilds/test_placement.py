"""Who should hold which partition: what a change may move, and how much anybody may own."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagmill.work import placement
from tagmill.work.placement import Member, Place, place

GIB = 2**30
# Five points of all partitions, beside the worker's own part.
SLACK = Fraction(1, 20)


def member(number: int, room: int = GIB, *, is_ready: bool = True) -> Member:
    return Member(number, UUID(int=number * 7919).bytes, room, is_ready)


class Walk:
    """Workers that come and go, one at a time; every step is checked."""

    def __init__(self, partitions: int) -> None:
        self.partitions = list(range(1, partitions + 1))
        self.members: dict[int, Member] = {}
        self.places: dict[int, Place] = {}
        self._numbers = 0

    def join(self, room: int = GIB, *, is_ready: bool = True) -> int:
        self._numbers += 1
        self.members[self._numbers] = joined = member(self._numbers, room, is_ready=is_ready)
        before = self._step()
        if len(self.members) > 1:
            self._moved_at_most(before, self._share(joined))
            assert self.loads()[joined.id] >= len(self.partitions) * self._share(joined) // 1
        counting = {item.counts for item in self.places.values()}
        assert is_ready or len(self.members) == 1 or self._numbers not in counting
        return self._numbers

    def leave(self, number: int) -> None:
        share = self._share(self.members[number])
        gone = self.members.pop(number)
        before = self._step()
        if self.members:
            self._moved_at_most(before, share)
            theirs = {key for key, item in before.items() if item.owner == gone.id}
            assert self._moved(before) <= theirs

    def warm(self, number: int) -> None:
        """It counts from now on, and nothing moves."""
        self.members[number] = self.members[number]._replace(is_ready=True)
        before = self._step()
        assert not self._moved(before)
        mine = [item for item in self.places.values() if item.owner == number]
        assert {item.counts for item in mine} <= {number}

    def grow(self, count: int) -> None:
        self.partitions += range(len(self.partitions) + 1, len(self.partitions) + 1 + count)
        before = self._step()
        assert not self._moved(before)

    def loads(self) -> Counter[int]:
        return Counter(item.owner for item in self.places.values())

    def _step(self) -> dict[int, Place]:
        before = self.places
        self.places = place(self.partitions, self.members.values(), before)
        self._is_right()
        return before

    def _is_right(self) -> None:
        assert set(self.places) == (set(self.partitions) if self.members else set())
        loads, count = self.loads(), len(self.partitions)
        for item in self.members.values():
            part = count * self._share(item)
            assert loads[item.id] <= max(part * Fraction(11, 10), -(-part // 1)), "too much"
            assert loads[item.id] or part < 1, "nothing, although it has a part"
        # The same in any order, and nothing left to do.
        shuffled = list(self.members.values())[::-1]
        assert place(self.partitions[::-1], shuffled, self.places) == self.places

    def _share(self, item: Member) -> Fraction:
        others = sum(other.room for other in self.members.values() if other.id != item.id)
        return Fraction(item.room, others + item.room)

    def _moved(self, before: dict[int, Place]) -> set[int]:
        return {key for key, item in before.items() if self.places[key].owner != item.owner}

    def _moved_at_most(self, before: dict[int, Place], share: Fraction) -> None:
        count = len(self.partitions)
        most = max(count * (share + SLACK), -(-count * share // 1))
        assert len(self._moved(before)) <= most, "too many moved"


ROOMS = st.sampled_from([GIB, GIB, GIB, 2 * GIB, 7 * GIB, GIB // 3])
STEPS = st.one_of(
    st.tuples(st.just("join"), ROOMS),
    st.tuples(st.just("warming"), ROOMS),
    st.tuples(st.just("leave"), st.integers(0, 50)),
    st.tuples(st.just("warm"), st.integers(0, 50)),
    st.tuples(st.just("grow"), st.integers(1, 3)),
)


def taken(walk: Walk, steps: list[tuple[str, int]]) -> None:
    for what, value in steps:
        known = list(walk.members)
        if what in ("join", "warming"):
            walk.join(value, is_ready=what == "join")
        elif what == "grow" and len(known) < 2:
            walk.grow(value)
        elif known and what == "leave":
            walk.leave(known[value % len(known)])
        elif known and what == "warm":
            walk.warm(known[value % len(known)])


@settings(max_examples=60)
@given(st.integers(1, 120), st.lists(STEPS, max_size=20))
def test_a_change_moves_the_part_of_one_worker_and_nobody_owns_too_much(
    partitions: int, steps: list[tuple[str, int]]
) -> None:
    taken(Walk(partitions), steps)


def churned(seed: int = 1) -> Walk:
    """Twelve workers of different room, of which one after the other is exchanged."""
    draw = random.Random(seed)
    walk = Walk(120)
    for number in range(12):
        walk.join(GIB * draw.choice([1, 1, 2, 4]), is_ready=number % 3 != 2)
    for number in range(1, 13):
        walk.leave(number)
        walk.warm(walk.join(GIB * draw.choice([1, 1, 2, 4]), is_ready=False))
    return walk


def test_a_worker_owns_by_what_it_can_hold() -> None:
    walk = Walk(1000)
    for room in (1, 1, 2, 4):
        walk.join(room * GIB)
    assert [walk.loads()[key] for key in (1, 2, 3, 4)] == pytest.approx(
        [125, 125, 250, 500], rel=0.1
    )
    walk.join(0)
    assert walk.loads()[5] == 0


def test_the_first_placement_is_by_scores_where_nobody_is_full() -> None:
    members = [member(number) for number in range(1, 9)]
    made = place(range(1000), members, {})
    best = {key: max(members, key=lambda item: placement.score(item, key)).id for key in made}
    assert sum(made[key].owner == best[key] for key in made) > 0.95 * len(made)


def test_what_a_newcomer_was_to_own_goes_back_where_it_has_gone_before_it_was_warm() -> None:
    walk = Walk(100)
    for _ in range(4):
        walk.join()
    before = walk.places
    walk.leave(walk.join(is_ready=False))
    assert walk.places == before


def test_a_newcomer_owns_at_once_what_nobody_else_counts_for() -> None:
    walk = Walk(10)
    walk.join(is_ready=False)
    assert {item.counts for item in walk.places.values()} == {1}


def test_many_partitions_take_no_longer_than_a_look_at_each() -> None:
    """A change asks for a hash of each partition and not of each with each worker."""
    walk = Walk(600)
    for _ in range(10):
        walk.join()
    calls: list[int] = []
    counted = placement._hash

    def count(item: Member, partition: int) -> int:
        calls.append(partition)
        return counted(item, partition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "_hash", count)
        members = [*walk.members.values(), member(99)]
        place(walk.partitions, members, walk.places)
        joined = len(calls)
        place(walk.partitions, list(walk.members.values())[1:], walk.places)
    assert joined <= 2 * len(walk.partitions)
    assert len(calls) - joined <= 2 * len(walk.partitions)


def _nothing(self: Any, *_: Any) -> None:
    pass


def _blind(item: Member, partition: int) -> float:
    return float(item.id)


def _scattered(self: Any, before: dict[int, Place]) -> None:
    """Keeps nothing: each change places everything anew."""


def _believing(self: Any, partition: int, before: dict[int, Place]) -> Place:
    owner = self._owners[partition]
    return Place(owner, owner)


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "owners do not stay": (placement._Board, "keep", _scattered),
    "nobody sheds": (placement._Board, "shed", _nothing),
    "newcomers take nothing": (placement._Board, "take_from_others", _nothing),
    "a newcomer counts at once": (placement._Board, "place", _believing),
    "no bound": (placement, "bound", lambda count, room, total: count),
    "a bound that forgets rooms": (placement, "bound", lambda count, room, total: count // 12 + 1),
    "a part that forgets rooms": (placement, "part", lambda count, room, total: count // 12),
    "a score of workers alone": (placement, "score", _blind),
}


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_the_checks_see_a_rule_that_is_left_out(
    mutant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = (churned, test_the_first_placement_is_by_scores_where_nobody_is_full)
    if mutant is None:
        for check in checks:
            check()
        return
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises((AssertionError, ValueError)):
        for check in checks:
            check()
