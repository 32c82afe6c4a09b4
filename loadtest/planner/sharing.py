"""How the queue shares a rebuild's partitions among workers (`tagmill.work.policy`).

A rebuild alone: previews, changes and definitions come before it, and are bounded in time. So are
its own leases: `most` is how many partitions a worker evaluates and reads in the time of one."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from tagmill.work import policy
from tagmill.work.policy import MAX_ORDINARY, Candidate, Speed
from tagmill_worker.completer import LINGER_SECONDS, MAX_RESULTS
from tagmill_worker.runtime import LOW_WATER_SECONDS as AHEAD_SECONDS

__all__ = [
    "AHEAD_SECONDS",
    "LINGER_SECONDS",
    "MAX_ORDINARY",
    "MAX_RESULTS",
    "Shared",
    "most",
    "one_by_one",
    "parts",
    "runs",
    "shared",
    "size",
]


@dataclass(frozen=True)
class Shared:
    """`leases`: how many there are; `first`: partitions of the first one; `last`: of each of the
    last ones, one a worker. `waiting` is summed over all leases: the partitions that wait at that
    moment, each of which a lease looks at."""

    leases: int
    first: int
    last: float
    waiting: int


def most(nodes: float, tags: int, speed: Speed, *, is_cold: bool) -> int:
    """The partitions of so many nodes that a lease has at most: one at least."""
    each = Candidate(0, 0, 0, round(nodes))
    held = () if is_cold else (0,)
    return policy.fitting([each] * MAX_ORDINARY, tags, speed, held)


def parts(nodes: float, tags: int, speed: Speed, *, is_cold: bool) -> int:
    """The leases in which the tags of one partition come."""
    return -(-tags // max(1, policy.part(tags, round(nodes), speed, is_held=not is_cold)))


def size(left: int, workers: int, *, is_cold: bool, most: int = MAX_ORDINARY) -> int:
    """Partitions of the next lease, while so many are left. Workers that hold them get their part
    at once; who has to fetch them gets half of it, so that all end together."""
    return min(left, most, policy.lease_size(left, workers, 0 if is_cold else left))


def runs(
    partitions: int, workers: int, *, is_cold: bool, most: int = MAX_ORDINARY
) -> Iterator[tuple[int, int]]:
    """(size, count): so many leases of one size follow one another. Sizes only fall, so that there
    are no more runs than sizes, however large the fleet."""
    next_size = functools.partial(size, workers=workers, is_cold=is_cold, most=most)
    left = partitions
    while left:
        taken = next_size(left)
        # The next lease is as large while more than this is left.
        enough = bisect.bisect_left(range(left + 1), taken, key=next_size) - 1
        count = -(-(left - enough) // taken)
        yield taken, count
        left -= count * taken


@functools.lru_cache(maxsize=1024)
def shared(partitions: int, workers: int, *, is_cold: bool, most: int = MAX_ORDINARY) -> Shared:
    made = list(runs(partitions, workers, is_cold=is_cold, most=most))
    left, waiting = partitions, 0
    for taken, count in made:
        waiting += count * left - taken * count * (count - 1) // 2
        left -= count * taken
    leases = sum(count for _, count in made)
    return Shared(leases, made[0][0], _last(made, min(workers, leases)), waiting)


def _last(made: list[tuple[int, int]], leases: int) -> float:
    """The mean size of so many last leases."""
    total, wanted = 0, leases
    for taken, count in reversed(made):
        total += taken * min(count, wanted)
        wanted -= min(count, wanted)
    return total / leases


def one_by_one(partitions: int) -> Shared:
    """A lease for each partition, without read-ahead."""
    return Shared(partitions, 1, 1, partitions * (partitions + 1) // 2)
