"""Which worker should hold which partition: bounded rendezvous hashing, on plain values.

Each partition has an owner. Who has none gets the worker of the highest score that is not full: a
score is a hash of worker and partition, weighted by what the worker can hold, and full is 1.1 times
the worker's part of all partitions. Owners stay, so that a change moves no more than it must:

- one that leaves moves what it had, and nothing else;
- one that joins takes its part, from those that are over theirs;
- one whose part shrinks sheds what is above its bound.

So the answer depends on what was before. It is computed once a change, under a lock, and stored
(`tagmill.work.membership`): all servers read the same.

A worker that has joined does not count before it has warmed what it will own: until then, who
counted before does.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# A worker owns at most 11/10 of its part, or its part rounded up where that is more.
BOUND = (11, 10)
# As many bits of a hash as a float below 1 has, less one: none is rounded to 1.
BITS = 52


class Member(NamedTuple):
    """A worker that can hold something. `room`: how much, in any unit that all have in common;
    `key`: what its scores are of. `is_ready`: it has warmed what it was to own when it joined."""

    id: int
    key: bytes
    room: int
    is_ready: bool = True


class Place(NamedTuple):
    """`owner` warms the partition, and will hold it; `counts` is preferred for it meanwhile."""

    owner: int
    counts: int


def place(
    partitions: Iterable[int], members: Iterable[Member], before: Mapping[int, Place]
) -> dict[int, Place]:
    """The place of each partition, by what it was `before`; none where nobody can hold anything.
    The order of what is given does not matter."""
    made = _Board(sorted(set(partitions)), [item for item in members if item.room > 0])
    if not made.members:
        return {}
    made.keep(before)
    made.shed()
    made.give_out(before)
    made.take_from_others()
    return {partition: made.place(partition, before) for partition in made.partitions}


def score(member: Member, partition: int) -> float:
    """The higher, the rather this one: among all members, each is the highest for its part."""
    return member.room / -math.log((_hash(member, partition) + 0.5) / 2**BITS)


def bound(count: int, room: int, total: int) -> int:
    """The partitions, of so many, that a member of so much room among all has at most."""
    over, under = BOUND
    return max(count * room * over // (total * under), -(-count * room // total))


def part(count: int, room: int, total: int) -> int:
    """The member's part of the partitions, rounded down."""
    return count * room // total


def _hash(member: Member, partition: int) -> int:
    named = member.key + partition.to_bytes(8, "big")
    digest = hashlib.blake2b(named, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - BITS)


class _Board:
    """Who owns what, while it is worked out."""

    def __init__(self, partitions: list[int], members: list[Member]) -> None:
        count, total = len(partitions), sum(item.room for item in members)
        self.partitions = partitions
        # By key, so that ids, which come as workers register, decide nothing.
        self.members = {item.id: item for item in sorted(members, key=lambda item: item.key)}
        self._bound = {item.id: bound(count, item.room, total) for item in members}
        self._part = {item.id: part(count, item.room, total) for item in members}
        self._owners: dict[int, int] = {}
        self._load: Counter[int] = Counter()
        self._newcomers: set[int] = set()

    def keep(self, before: Mapping[int, Place]) -> None:
        for partition in self.partitions:
            known = before.get(partition)
            if known is not None and known.owner in self.members:
                self._give(partition, known.owner)
        # Where all are new, none has to be given its part before the others.
        if self._owners:
            self._newcomers = {key for key in self.members if not self._load[key]}

    def shed(self) -> None:
        """What is above a bound has no owner: that of the lowest scores."""
        over = [key for key in self.members if self._load[key] > self._bound[key]]
        theirs: dict[int, list[int]] = {key: [] for key in over}
        for partition, owner in self._owners.items():
            if owner in theirs:
                theirs[owner].append(partition)
        for owner, held in theirs.items():
            member = self.members[owner]
            held.sort(key=lambda partition: (_hash(member, partition), partition))
            for partition in held[: self._load[owner] - self._bound[owner]]:
                del self._owners[partition]
                self._load[owner] -= 1

    def give_out(self, before: Mapping[int, Place]) -> None:
        """What has no owner: to who counted before, to newcomers until they have their part, and
        then to whoever is not full."""
        for partition in self.partitions:
            if partition in self._owners:
                continue
            known = before.get(partition)
            if known is not None and known.owner != known.counts and self._has_room(known.counts):
                self._give(partition, known.counts)
                continue
            able = self._hungry() or [
                item for item in self.members.values() if self._has_room(item.id)
            ]
            self._give(partition, max(able, key=lambda item: score(item, partition)).id)

    def take_from_others(self) -> None:
        """Newcomers, and whom no score gave anything, take what they lack of their part from those
        that have more than theirs."""
        self._newcomers |= {key for key in self.members if not self._load[key]}
        for member in self._hungry():
            ranked = sorted(self._owners, key=lambda key: (-_hash(member, key), key))
            for partition in ranked:
                if self._load[member.id] >= self._part[member.id]:
                    break
                owner = self._owners[partition]
                if self._load[owner] > self._part[owner]:
                    self._load[owner] -= 1
                    self._give(partition, member.id)

    def place(self, partition: int, before: Mapping[int, Place]) -> Place:
        owner, known = self._owners[partition], before.get(partition)
        if self.members[owner].is_ready or known is None or known.counts not in self.members:
            return Place(owner, owner)
        return Place(owner, known.counts)

    def _give(self, partition: int, owner: int) -> None:
        self._owners[partition] = owner
        self._load[owner] += 1

    def _has_room(self, member: int) -> bool:
        return member in self.members and self._load[member] < self._bound[member]

    def _hungry(self) -> list[Member]:
        newcomers = [self.members[key] for key in self.members if key in self._newcomers]
        return [item for item in newcomers if self._load[item.id] < self._part[item.id]]
