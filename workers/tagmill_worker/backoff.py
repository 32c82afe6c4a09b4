"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

FIRST_SECONDS = 0.25
# With the two seconds that a server without its database asks for, one that comes back is noticed
# within five, however long it was away. A thousand workers then make some 300 requests a second,
# which a server answers without its database.
MAX_SECONDS = 3.0
# What a server may ask for; a typing error in a proxy must not stop a worker for a day.
MAX_RETRY_AFTER = 300.0
# Seconds before a partition that the child did not get through may be leased again.
FIRST_DELAY, MAX_DELAY = 5, 600


class Backoff:
    """Exponential, with full jitter: a delay is drawn from 0 to a ceiling that doubles.

    A thousand workers that lost one server at the same moment so come back spread out. `uniform`
    draws a float between its arguments.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        most: float = MAX_SECONDS,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = first
        self._most = most
        self._uniform = uniform
        self.attempts = 0

    def reset(self) -> None:
        self.attempts = 0

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait; at least `retry_after`, with the jitter on top."""
        # 2.0 ** 1024 overflows; the ceiling is reached long before 32 attempts.
        ceiling = min(self._most, self._first * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        jitter = self._uniform(0.0, ceiling)
        return jitter + min(max(retry_after or 0.0, 0.0), MAX_RETRY_AFTER)


class Setbacks:
    """How often each partition could not be evaluated since it last could, and how long nobody
    should be leased it: each attempt at what the child does not get through costs a child, with all
    that it holds. An upload ends the delay."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def next(self, partition: int) -> int:
        """Seconds: twice as many each time."""
        times = self._times[partition]
        self._times[partition] += 1
        # A shift of so many bits is beyond MAX_DELAY.
        return min(FIRST_DELAY << min(times, 16), MAX_DELAY)

    def reset(self, partition: int) -> None:
        self._times.pop(partition, None)
