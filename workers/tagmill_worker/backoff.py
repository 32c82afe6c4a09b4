"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_SECONDS = 0.25
# With the two seconds that a server without its database asks for, one that comes back is noticed
# within five, however long it was away. A thousand workers then make some 300 requests a second,
# which a server answers without its database.
MAX_SECONDS = 3.0
# What a server may ask for; a typing error in a proxy must not stop a worker for a day.
MAX_RETRY_AFTER = 300.0


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
