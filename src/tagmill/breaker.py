"""Leaves out what does not answer, and tries it again after pauses that grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("tagmill.breaker")

# A single failure may be a packet that was lost.
MAX_FAILURES = 3
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0


class Breaker:
    """After three failures in a row nobody calls; when the pause is over, one does, and the others
    go on without until that one has succeeded. For any thread."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._until = 0.0
        self._is_tried = False

    @property
    def is_left_out(self) -> bool:
        return self._failures >= MAX_FAILURES

    def may_call(self) -> bool:
        if not self.is_left_out:
            return True
        with self._lock:
            now = self._clock()
            if now < self._until:
                return False
            # This caller tries. One that never says what came of it is not waited for.
            self._is_tried, self._until = True, now + self._pause
            return True

    def failed(self, error: BaseException) -> None:
        with self._lock:
            self._failures += 1
            if self._is_tried:
                self._is_tried = False
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            elif self._failures != MAX_FAILURES:
                # Others had called before it was left out.
                return
            self._until = self._clock() + self._pause
        log.warning(f"{self._what} is left out", error=str(error), again_in=self._pause)

    def succeeded(self) -> None:
        if not self._failures:
            return
        with self._lock:
            was_left_out, self._failures = self.is_left_out, 0
            self._pause, self._is_tried = FIRST_PAUSE_SECONDS, False
        if was_left_out:
            log.info(f"{self._what} answers again")
