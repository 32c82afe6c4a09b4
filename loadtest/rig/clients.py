"""Threads that ask without pause beside what is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from loadtest.bench import BenchError

# Asks once; the seconds until the answer.
Ask = Callable[[], float]
LOOK_SECONDS = 0.01


class Clients:
    """`count` of them, from `with` to its end; `connect` opens what one asks by.

    Whoever meets an error stops asking, and what is measured from then on is beside fewer clients
    than the result says: `check` raises it.
    """

    def __init__(
        self, count: int, connect: Callable[[int], AbstractContextManager[Ask]], seconds: float
    ) -> None:
        """`seconds`: more than any answer takes."""
        self._connect = connect
        self._seconds = seconds
        self._answered: list[list[float]] = [[] for _ in range(count)]
        self._errors: list[tuple[int, Exception]] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,), daemon=True)
            for number in range(count)
        ]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        deadline = time.monotonic() + self._seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def wait(self, check: Callable[[], None]) -> None:
        """Until each of them was answered once. Raises BenchError, and what `check` raises."""
        deadline = time.monotonic() + self._seconds
        while waiting := sum(not seconds for seconds in self._answered):
            check()
            self.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{waiting} clients had no answer within {self._seconds:g} s")
            time.sleep(LOOK_SECONDS)

    def check(self) -> None:
        """Raises BenchError when one of them has met an error."""
        if self._errors:
            number, error = self._errors[0]
            raise BenchError(f"client {number}: {str(error) or repr(error)}") from error

    def seconds(self) -> list[float]:
        """The seconds that every answer so far took, sorted."""
        return sorted(seconds for answered in self._answered for seconds in list(answered))

    def _ask(self, number: int) -> None:
        try:
            with self._connect(number) as ask:
                while not self._stopping.is_set():
                    self._answered[number].append(ask())
        except Exception as error:
            self._errors.append((number, error))
