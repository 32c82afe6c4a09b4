"""The pages that are not answered yet: those that wait, and those that the child was sent."""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred

from tagmill_worker.evaluators.passes import Pass, Task


class Backlog:
    """`waiting` and `sent` in the order of submission; whoever changes them calls `wake`."""

    def __init__(self) -> None:
        self.waiting: deque[Task] = deque()
        self.sent: deque[Task] = deque()
        self._waiters: list[tuple[int, int, Deferred[None]]] = []

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sent)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(task.page.size for task in (*self.waiting, *self.sent))

    def cancel(self, pass_: Pass) -> None:
        """Forget the pass's pages; those that were sent are still answered by the child."""
        self.waiting = deque(task for task in self.waiting if task.pass_ is not pass_)
        for task in self.sent:
            if task.pass_ is pass_:
                task.is_cancelled = True
        self.wake()

    def take_back(self) -> None:
        """What was sent to a child that is gone waits again, before everything else."""
        self.waiting.extendleft(task for task in reversed(self.sent) if not task.is_cancelled)
        self.sent.clear()

    def below(self, pages: int, size: int) -> Deferred[None]:
        """Fires when no more than `pages` pages and fewer than `size` bytes are unanswered.

        A single page that is larger than `size` counts as nothing while it is alone.
        """
        entry: Deferred[None] = Deferred(self._forget_waiter)
        self._waiters.append((pages, size, entry))
        self.wake()
        return entry

    def wake(self) -> None:
        count, size = len(self), self.size
        ready = [
            entry
            for pages, most, entry in self._waiters
            if count <= pages and (size < most or not count)
        ]
        self._waiters = [item for item in self._waiters if item[2] not in ready]
        for entry in ready:
            entry.callback(None)

    def _forget_waiter(self, entry: Deferred[None]) -> None:
        self._waiters = [item for item in self._waiters if item[2] is not entry]
