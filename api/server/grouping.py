"""Requests that go together: what arrives while a thread is at work is the next thread's work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from api.server.threads import Threads
from tagmill.errors import DatabaseBusy
from tagmill.flows.together import MAX_PAUSES

Item = TypeVar("Item")
Result = TypeVar("Result")

TOO_MANY = "more requests wait than this server takes at once: try again shortly"
TOO_LATE = "the requests before this one took too long: try again shortly"


@dataclass(frozen=True)
class Bounds:
    """`group` and `group_bytes`: of what goes together; `waiting` and `waiting_bytes`: of what has
    not begun. `seconds`: the longest that a request waits to begin. `patience`: a thread that has
    been at work for so many seconds keeps the next one from beginning no longer, two for twice as
    many, and so on. `linger`: the most seconds after the end of a group in which the next one waits
    until it is as large, or `enough`."""

    group: int
    group_bytes: int
    waiting: int
    waiting_bytes: int
    seconds: float
    patience: float
    linger: float = 0.0
    enough: int = 1


class _Waiting(Generic[Item, Result]):
    """One request. `timer` runs until it begins; `answer` may have been cancelled since."""

    def __init__(self, item: Item, size: int, answer: Deferred[Result], timer: Any) -> None:
        self.item = item
        self.size = size
        self.answer = answer
        self.timer = timer


class Grouping(Generic[Item, Result]):
    """Calls `work` in threads with the items that wait, as many as the bounds allow. An item that
    finds nothing at work goes alone, at once; those that arrive meanwhile go together. That is one
    thread's work, while it is quick: where it waits (for a lock, for a slow disk), others go on.

    Clients that were answered together come again one after the other. Most of what a group costs
    does not depend on its size, so the first of them waits for the others: for as long as their
    last group took, and no longer than `linger`. Where `enough` wait already, more would gain
    little, and it is better that clients and database work at the same time.

    `work` has for each item, in their order, its result or the error that it raises; where `work`
    itself raises, every item does. A client that leaves takes its item back until it begins. Lives
    on the reactor thread."""

    def __init__(
        self,
        reactor: Any,
        threads: Threads,
        work: Callable[[Sequence[Item]], Sequence[Result | BaseException]],
        bounds: Bounds,
    ) -> None:
        self._reactor = reactor
        self._threads = threads
        self._work = work
        self._bounds = bounds
        self._waiting: deque[_Waiting[Item, Result]] = deque()
        self._bytes = 0
        self._idle = threads.most
        self._last_began = 0.0
        self._looking_again: Any = None
        self._expected = 0
        """As many came and waited when the last group ended, and until `_lingers_until` those are
        waited for."""
        self._lingers_until = 0.0

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        return len(self._waiting)

    def call(self, item: Item, size: int) -> Deferred[Result]:
        """The item's result. `size`: the bytes that it holds. Fails with DatabaseBusy where too
        much waits, or for too long."""
        bounds = self._bounds
        if self._waiting and (
            len(self._waiting) >= bounds.waiting or self._bytes + size > bounds.waiting_bytes
        ):
            refused: Deferred[Result] = Deferred()
            refused.errback(DatabaseBusy(TOO_MANY))
            return refused
        answer: Deferred[Result] = Deferred(lambda _: self._take_back(waiting))
        timer = self._reactor.callLater(bounds.seconds, lambda: self._late(waiting))
        waiting: _Waiting[Item, Result] = _Waiting(item, size, answer, timer)
        self._waiting.append(waiting)
        self._bytes += size
        self._begin()
        return answer

    def _begin(self) -> None:
        while self._idle and self._waiting:
            began = self._reactor.seconds()
            if (left := self._delay(began)) > 0:
                self._look_again_in(left)
                return
            group = self._next()
            self._last_began = began
            self._idle -= 1
            running = self._threads.call(self._work, [waiting.item for waiting in group])
            running.addCallback(self._answered, group)
            running.addErrback(self._failed, group)
            running.addBoth(self._done, len(group), began)

    def _delay(self, now: float) -> float:
        """For how long the next group does not begin yet: another has begun a moment ago, or has
        ended, and its clients are on their way."""
        if self._idle < self._threads.most:
            # What those at work wait for may be one lock: the more they are, the longer others wait
            # for a larger group.
            pauses = min(1 << (self._threads.most - self._idle - 1), MAX_PAUSES)
            return self._last_began + pauses * self._bounds.patience - now
        if len(self._waiting) >= self._expected or self._bytes >= self._bounds.group_bytes:
            return 0.0
        return self._lingers_until - now

    def _look_again_in(self, seconds: float) -> None:
        at, call = self._reactor.seconds() + seconds, self._looking_again
        if call is not None and call.active():
            if call.getTime() <= at:
                return
            call.cancel()
        self._looking_again = self._reactor.callLater(seconds, self._begin)

    def _next(self) -> list[_Waiting[Item, Result]]:
        group: list[_Waiting[Item, Result]] = []
        size = 0
        while self._waiting and len(group) < self._bounds.group:
            size += self._waiting[0].size
            if group and size > self._bounds.group_bytes:
                break
            group.append(self._left(self._waiting[0]))
        return group

    def _left(self, waiting: _Waiting[Item, Result]) -> _Waiting[Item, Result]:
        """Out of the queue. It is the first, but for what is late or taken back."""
        if self._waiting[0] is waiting:
            self._waiting.popleft()
        else:
            self._waiting.remove(waiting)
        self._bytes -= waiting.size
        if waiting.timer.active():
            waiting.timer.cancel()
        return waiting

    def _take_back(self, waiting: _Waiting[Item, Result]) -> None:
        if waiting.timer.active():
            self._left(waiting)

    def _late(self, waiting: _Waiting[Item, Result]) -> None:
        self._left(waiting)
        waiting.answer.errback(DatabaseBusy(TOO_LATE))

    def _answered(
        self,
        results: Sequence[Result | BaseException],
        group: Sequence[_Waiting[Item, Result]],
    ) -> None:
        for waiting, result in zip(group, results, strict=True):
            # A client that has left has no answer any more.
            if waiting.answer.called:
                continue
            if isinstance(result, BaseException):
                waiting.answer.errback(result)
            else:
                waiting.answer.callback(result)

    def _failed(self, failure: Failure, group: Sequence[_Waiting[Item, Result]]) -> None:
        for waiting in group:
            if not waiting.answer.called:
                waiting.answer.errback(failure.value)

    def _done(self, _: object, size: int, began: float) -> None:
        now, waiting = self._reactor.seconds(), len(self._waiting)
        self._idle += 1
        # As many as there were are enough.
        self._expected = min(self._bounds.enough, size + waiting) if waiting < size else waiting
        self._lingers_until = now + min(self._bounds.linger, now - began)
        self._begin()
