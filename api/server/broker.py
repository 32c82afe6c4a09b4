"""Parked long-polls, and who is woken when there is work.

A poll is first tried at once; when there is nothing for it, it waits here and holds no thread. A
notification wakes a few polls that may take the work, owners and holders of the partitions first.
Each poll that got something wakes the next one; one that got nothing ends the chain. So a thousand
waiting workers cost a few attempts a notification, not a thousand.

Everything here runs on the reactor thread; only `take` and `give_back` leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from tagmill_wire.messages import LeaseAnswer, LeaseRequest

log = structlog.get_logger("tagmill.broker")

# Polls woken by one notification, in all processes of a server: enough to use a big batch of work
# at once (the chain wakes the rest), few enough that a single job costs little.
WAKE = 4
# A notification can be lost (a reconnect, a crash between commit and NOTIFY).
LOOK_AGAIN_SECONDS = 5.0


@dataclass(eq=False)
class Poll:
    """What a worker asked for, and the token it asked with. `asked` is read from the body in the
    thread of the first attempt; until then, what it says of the worker is true at this moment.
    `dumped`: the answer that leases something, as JSON, which may have megabytes: made in the
    thread. `trace`: the place in a trace that what is leased belongs to."""

    token: str
    body: bytes
    asked: LeaseRequest | None = None
    dumped: bytes = b""
    trace: str = ""


@dataclass(frozen=True)
class Taken:
    """What an attempt found. `clusters`: what the token may take, None for every cluster.
    `leased`: the clusters of the leases in `answer`. `holds`: the partitions that the worker
    named as held; `owns`: those that it is preferred for."""

    answer: LeaseAnswer
    clusters: frozenset[int] | None
    leased: frozenset[int] = frozenset()
    holds: frozenset[int] = frozenset()
    owns: frozenset[int] = frozenset()


@dataclass(eq=False)
class _Waiter:
    poll: Poll
    done: Deferred[LeaseAnswer] = field(default_factory=Deferred)
    clusters: frozenset[int] | None = None
    holds: frozenset[int] = frozenset()
    owns: frozenset[int] = frozenset()
    """Like `clusters`, these are known after the first attempt: nobody is parked before."""
    is_busy: bool = False
    try_again: bool = False
    """Work arrived while an attempt ran, which may have looked too early to see it."""
    is_over: bool = False

    def may_take(self, clusters: frozenset[int] | None) -> bool:
        return clusters is None or self.clusters is None or not self.clusters.isdisjoint(clusters)

    def rank(self, partitions: frozenset[int]) -> tuple[bool, bool]:
        """The lower, the rather it takes them: who owns one comes first, then who holds one."""
        return self.owns.isdisjoint(partitions), self.holds.isdisjoint(partitions)


class Broker:
    """`take` makes one attempt; `give_back` returns leases whose worker has vanished."""

    def __init__(
        self,
        clock: Any,
        take: Callable[[Poll], Deferred[Taken]],
        give_back: Callable[[Poll, LeaseAnswer], Deferred[None]],
        wake: int = WAKE,
    ) -> None:
        self._clock = clock
        self._take = take
        self._give_back = give_back
        self._most = wake
        self._waiters: dict[_Waiter, None] = {}
        self._is_draining = False
        self._looking = LoopingCall(self.look_again)
        self._looking.clock = clock

    @property
    def parked(self) -> int:
        """Polls that wait, without those being tried at this moment. For any thread: the list is
        made in one step, and polls come and go while it is looked through."""
        return sum(not waiter.is_busy for waiter in list(self._waiters))

    def start(self) -> None:
        self._looking.start(LOOK_AGAIN_SECONDS, now=False)

    def poll(self, poll: Poll, seconds: float) -> Deferred[LeaseAnswer]:
        """The answer within about `seconds`: empty when nothing came. Cancel it when the client has
        gone. An attempt's error (the token, the database) is passed on."""
        waiter = _Waiter(poll)
        waiter.done = Deferred(lambda _: self._over(waiter))
        self._waiters[waiter] = None
        if seconds > 0:
            timer = self._clock.callLater(seconds, self._answer, waiter, LeaseAnswer([], {}))

            def stop_timer(result: Any) -> Any:
                if timer.active():
                    timer.cancel()
                return result

            waiter.done.addBoth(stop_timer)
        self._try(waiter, last=seconds <= 0)
        return waiter.done

    def work_arrived(self, cluster: int | None, partitions: Iterable[int] = ()) -> None:
        """There is work in `cluster` (None: somewhere), perhaps in these partitions."""
        self._wake(
            None if cluster is None else frozenset({cluster}), frozenset(partitions), self._most
        )

    def work_taken(self, clusters: frozenset[int]) -> None:
        """Somebody who did not wait here was leased some of these clusters: there may be more."""
        self._wake(clusters, frozenset(), 1)

    def look_again(self) -> None:
        """Wake one poll for each set of clusters: together they see all work that can be taken."""
        seen: set[frozenset[int] | None] = set()
        for waiter in list(self._waiters):
            if not waiter.is_busy and waiter.clusters not in seen:
                seen.add(waiter.clusters)
                self._try(waiter)

    def drain(self) -> None:
        """Answer every parked poll with nothing, and from now on every poll after one attempt."""
        self._is_draining = True
        if self._looking.running:
            self._looking.stop()
        for waiter in list(self._waiters):
            if not waiter.is_busy:
                self._answer(waiter, LeaseAnswer([], {}))

    def _wake(self, clusters: frozenset[int] | None, partitions: frozenset[int], most: int) -> None:
        able = [waiter for waiter in self._waiters if waiter.may_take(clusters)]
        parked = [waiter for waiter in able if not waiter.is_busy]
        if partitions:
            # Stable: among equals, who waits longest comes first.
            parked.sort(key=lambda waiter: waiter.rank(partitions))
        chosen = parked[:most]
        for waiter in islice((item for item in able if item.is_busy), most - len(chosen)):
            waiter.try_again = True
        for waiter in chosen:
            self._try(waiter)

    def _try(self, waiter: _Waiter, last: bool = False) -> None:
        waiter.is_busy, waiter.try_again = True, False
        self._take(waiter.poll).addCallbacks(
            self._taken, self._failed, callbackArgs=(waiter, last), errbackArgs=(waiter,)
        )

    def _taken(self, taken: Taken, waiter: _Waiter, last: bool) -> None:
        waiter.is_busy = False
        waiter.clusters, waiter.holds, waiter.owns = taken.clusters, taken.holds, taken.owns
        if taken.answer.leases:
            if waiter.is_over:
                self._return(waiter, taken.answer)
            else:
                self._answer(waiter, taken.answer)
            self._wake(taken.leased, frozenset(), 1)
        elif waiter.is_over:
            return
        elif last or self._is_draining:
            self._answer(waiter, taken.answer)
        elif waiter.try_again:
            self._try(waiter)
        else:
            # To the end of the queue: the next notification tries somebody else first.
            self._waiters[waiter] = self._waiters.pop(waiter)

    def _failed(self, failure: Failure, waiter: _Waiter) -> None:
        waiter.is_busy = False
        if not waiter.is_over:
            self._over(waiter)
            waiter.done.errback(failure)

    def _answer(self, waiter: _Waiter, answer: LeaseAnswer) -> None:
        if not waiter.is_over:
            self._over(waiter)
            waiter.done.callback(answer)

    def _over(self, waiter: _Waiter) -> None:
        waiter.is_over = True
        self._waiters.pop(waiter, None)

    def _return(self, waiter: _Waiter, answer: LeaseAnswer) -> None:
        def failed(failure: Failure) -> None:
            # The lease then ends by its deadline.
            log.warning("leases of a vanished client kept", error=failure.getErrorMessage())

        self._give_back(waiter.poll, answer).addErrback(failed)
