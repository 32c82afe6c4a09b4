"""How the queue shares a rebuild's partitions among workers (`tagmill.rebuilds.leases._share`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tagmill.rebuilds.leases import LEAST_HELD, MOST_ORDINARY
from workers.runtime import LOW_WATER_SECONDS as AHEAD_SECONDS

__all__ = ["AHEAD_SECONDS", "Shared", "one_by_one", "shared", "size", "sizes"]


@dataclass(frozen=True)
class Shared:
    """`leases`: how many there are; `first`: partitions of the first one. `waiting` is summed over
    all leases: the partitions that wait at that moment, each of which a lease looks at."""

    leases: int
    first: int
    waiting: int


def size(left: int, workers: int, *, is_cold: bool) -> int:
    """Partitions of the next lease, while so many are left. Workers that hold them get their part
    at once; who has to fetch them gets half of it, so that all end together."""
    part = left / workers
    wanted = math.ceil(part / 2) if is_cold else max(LEAST_HELD, math.ceil(part))
    return min(left, MOST_ORDINARY, wanted)


def sizes(partitions: int, workers: int, *, is_cold: bool) -> Iterator[int]:
    left = partitions
    while left:
        taken = size(left, workers, is_cold=is_cold)
        yield taken
        left -= taken


@functools.lru_cache(maxsize=1024)
def shared(partitions: int, workers: int, *, is_cold: bool) -> Shared:
    leases = list(sizes(partitions, workers, is_cold=is_cold))
    left, waiting = partitions, 0
    for taken in leases:
        waiting += left
        left -= taken
    return Shared(len(leases), leases[0], waiting)


def one_by_one(partitions: int) -> Shared:
    """A lease for each partition, without read-ahead."""
    return Shared(partitions, 1, partitions * (partitions + 1) // 2)
