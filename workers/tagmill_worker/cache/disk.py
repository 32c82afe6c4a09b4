"""One thread for all that the cache does with its files: a disk that is slow, or hangs, holds up
this thread alone."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

# Somebody waits for a read; nobody for anything else, which stays in its order.
READ, WRITE, END = 0, 1, 2


class Disk:
    """`do` is called on the reactor's thread, and its Deferred fires there."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._numbers = itertools.count()
        self._queue: queue.PriorityQueue[tuple[int, int, Any, Any]] = queue.PriorityQueue()
        # A daemon: a disk that hangs does not keep the worker from ending.
        self._thread = threading.Thread(target=self._run, name="cache", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], T], priority: int = WRITE) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        self._queue.put((priority, next(self._numbers), work, done))
        return done

    def close(self) -> Deferred[None]:
        """Fires when what was asked for is done."""
        return self.do(lambda: None, END)

    def _run(self) -> None:
        while True:
            priority, _, work, done = self._queue.get()
            result: Any
            try:
                result = work()
            except BaseException:
                result = Failure()
            self._reactor.callFromThread(_fire, done, result)
            if priority == END:
                return


def _fire(done: Deferred[Any], result: Any) -> None:
    # A read may have been given up meanwhile.
    if not done.called:
        done.callback(result)
