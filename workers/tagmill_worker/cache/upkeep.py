"""What the parts of the warm tier share: one thread for its files, and its end when they fail.

A file that is missing or damaged costs a fetch; a disk that is full, read-only or gone ends the
tier, with a metric to be woken by, and never an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.python.failure import Failure

from tagmill_worker.cache import folders
from tagmill_worker.cache.disk import WRITE, Disk
from tagmill_worker.cache.entries import Entries
from tagmill_worker.cache.files import Place
from tagmill_worker.cache.lock import Lock
from tagmill_worker.metrics import Metrics

T = TypeVar("T")

# A disk that takes longer than this is no faster than the server.
ANSWER_SECONDS = 10.0

log = structlog.get_logger("workers.cache")


class Upkeep:
    """`incarnation`: what is there is of it; "" until it was opened."""

    def __init__(
        self, reactor: Any, directory: Path, entries: Entries, metrics: Metrics, lock: Lock
    ) -> None:
        self.directory = directory
        self.entries = entries
        self.incarnation = ""
        self.is_on = True
        self._reactor = reactor
        self._metrics = metrics
        self._lock = lock
        self._disk = Disk(reactor)
        metrics.cache_off.set(0)

    def do(self, work: Callable[[], T], priority: int = WRITE) -> Deferred[T]:
        return self._disk.do(work, priority)

    def timed(self, work: Callable[[], T], priority: int = WRITE) -> Deferred[T]:
        """As `do`; fails with TimeoutError when it takes too long."""
        return self._disk.do(work, priority).addTimeout(ANSWER_SECONDS, self._reactor)

    def later(self, work: Callable[[], None]) -> None:
        """Nobody waits for it."""
        if self.is_on:
            self._disk.do(work).addErrback(self._failed)

    def place(self, partition: int) -> Place:
        return Place(self.directory, self.incarnation, partition)

    def delete_partition(self, partition: int) -> None:
        self.later(partial(folders.delete_partition, self.place(partition)))

    def delete(self, paths: Iterable[Path]) -> None:
        self.later(partial(folders.delete, list(paths)))

    # -- what is not believed, and the end -------------------------------------------------------

    def damaged(self, path: Path, reason: str) -> None:
        """Set it aside."""
        log_damaged(path, reason)
        self.later(partial(folders.set_aside, self.directory, path))
        done = self._disk.do(partial(folders.aside_bytes, self.directory))
        done.addCallbacks(partial(setattr, self.entries, "aside"), lambda _: None)

    def damaged_there(self, path: Path, reason: str) -> None:
        """Called on the disk's thread."""
        self._reactor.callFromThread(log_damaged, path, reason)

    def turn_off(self, reason: str) -> None:
        """For good: an operator looks at it, and starts the worker again."""
        if not self.is_on:
            return
        self.is_on = False
        self.entries.clear()
        self._metrics.cache_off.set(1)
        self.measure()
        log.error(
            "the cache is turned off; evaluation goes on without it",
            action="cache_off",
            directory=str(self.directory),
            error=reason,
        )

    async def close(self) -> None:
        """What waits to be written is, if that does not take long. Then the lock is free."""
        try:
            await self._disk.close().addTimeout(ANSWER_SECONDS, self._reactor)
        except (TimeoutError, CancelledError):
            log.warning("the cache did not end in time", action="cache_unfinished")
        self._lock.close()

    def measure(self) -> None:
        pages = sum(entry.page_bytes for entry in self.entries)
        size = self._metrics.cache_bytes.labels
        size("pages").set(pages)
        size("images").set(self.entries.size - pages - self.entries.aside)
        size("aside").set(self.entries.aside)
        state = self._metrics.cache_state_bytes.labels
        for name, taken in self.entries.states().items():
            state(name).set(taken)
        self._metrics.cache_partitions.set(len(self.entries))
        self._metrics.cache_age.set(self.entries.oldest())
        self._metrics.cache_dirty_age.set(self.entries.oldest_dirty())

    def _failed(self, failure: Failure) -> None:
        self.turn_off(said(failure.value))


def said(error: BaseException | None) -> str:
    return str(error) or type(error).__name__


def log_damaged(path: Path, reason: str) -> None:
    log.error(
        "a file of the cache is not believed; it is set aside",
        action="cache_damaged",
        file=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        error=reason,
    )
