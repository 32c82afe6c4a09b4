"""The worker's share: the partitions that it should hold, warmed before anybody asks about them.

The server says what the share is, once an epoch; answers to leases and heartbeats name the epoch.
What is not held is fetched when there is nothing else to do, but not put off for ever. A worker
that has just come says when it is warm, and is preferred for its share from then on. It is no
more than a preference: whatever goes wrong here, leases come all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import structlog
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater

from tagmill_wire.messages import SHARES_SINCE, Registered, ShareRequest
from tagmill_worker.client import Client
from tagmill_worker.errors import NotFound, Unauthorized, WorkerGone
from tagmill_worker.fetching import Fetcher
from tagmill_worker.former import Former
from tagmill_worker.holdings import Holdings
from tagmill_worker.job import warming
from tagmill_worker.metrics import Metrics
from tagmill_worker.session import GIVE_UP_SECONDS, Session

# How long a page waits at most for leases, and how often it looks whether they are done.
POLITE_SECONDS = 1.0
LOOK_SECONDS = 0.05
# A worker that has not warmed its share by then is preferred for it all the same.
MAX_WARMING_SECONDS = 600.0

log = structlog.get_logger("workers.shares")


class Shares:
    """`room` answers the bytes that the worker can hold, `is_busy` whether it has leases."""

    def __init__(
        self,
        reactor: Any,
        client: Client,
        session: Session,
        fetcher: Fetcher,
        holdings: Holdings,
        *,
        former: Former,
        metrics: Metrics,
        room: Callable[[], int],
        is_busy: Callable[[], bool],
    ) -> None:
        self.epoch = 0
        self._reactor = reactor
        self._client = client
        self._session = session
        self._fetcher = fetcher
        self._holdings = holdings
        self._former = former
        self._metrics = metrics
        self._room = room
        self._is_busy = is_busy
        self._told = 0
        self._news: Deferred[None] | None = None
        self._running: Deferred[None] | None = None
        self._leaving: Deferred[Any] | None = None

    def begin(self, registered: Registered) -> None:
        """The worker has registered: it asks for its share from here on."""
        self.end()
        if registered.protocol >= SHARES_SINCE and self._room():
            self._running = Deferred.fromCoroutine(self._run(registered))
            self._running.addErrback(lambda _: None)

    def told(self, epoch: object) -> None:
        """An answer named an epoch, or none."""
        if not isinstance(epoch, int):
            return
        self._told = epoch
        if epoch != self.epoch and self._news is not None and not self._news.called:
            self._news.callback(None)

    def end(self) -> None:
        running, self._running = self._running, None
        self.epoch = self._told = 0
        if running is not None:
            running.cancel()

    def leave(self) -> None:
        """What the worker owns is others' from now on; what it is leased, it finishes."""
        registered, epoch = self._session.registered, self.epoch
        self.end()
        if registered is None or not epoch:
            return
        asked = Deferred.fromCoroutine(self._client.share(ShareRequest(registered.worker, 0)))
        self._leaving = asked.addTimeout(GIVE_UP_SECONDS, self._reactor)
        # It is silent before long anyway.
        self._leaving.addErrback(
            lambda failure: log.warning(
                "leaving was not heard", action="leave_failed", error=str(failure.value)
            )
        )

    async def left(self) -> None:
        if self._leaving is not None:
            await self._leaving

    # -- being told ------------------------------------------------------------------------------

    async def _run(self, registered: Registered) -> None:
        try:
            await self._follow(registered)
        except (WorkerGone, Unauthorized, CancelledError):
            # Whoever leases hears it, too, and does something about it.
            return
        except Exception as error:
            log.error("no share any more", action="share_failed", exc_info=error)

    async def _follow(self, registered: Registered) -> None:
        is_ready = False
        until = self._reactor.seconds() + MAX_WARMING_SECONDS
        former: str | None = await self._former.read()
        while True:
            asked = ShareRequest(registered.worker, self._room(), is_ready, former)
            share = await self._session.persistently("share", partial(self._client.share, asked))
            self.epoch = self._told = share.epoch
            self._metrics.share_epoch.set(share.epoch)
            self._metrics.share_partitions.set(len(share.partitions))
            if former != registered.worker:
                await self._former.write(registered.worker)
                former = registered.worker
            most = math.inf if is_ready else until
            if not await self._warm(share.partitions, registered.incarnation, most):
                continue
            if not is_ready:
                is_ready = True
                continue
            await self._wait()

    async def _wait(self) -> None:
        """Until there is another epoch."""
        while self._told == self.epoch:
            self._news = Deferred()
            await self._news

    # -- warming ---------------------------------------------------------------------------------

    async def _warm(self, partitions: Iterable[int], incarnation: str, until: float) -> bool:
        """Fetch what is not held. False: the share is another one by now."""
        missing = [key for key in partitions if not self._holdings.has(key)]
        for left, partition in zip(range(len(missing), 0, -1), missing, strict=True):
            self._metrics.share_missing.set(left)
            if self._told != self.epoch:
                return False
            if self._reactor.seconds() > until or self._holdings.has(partition):
                continue
            outcome = await self._fetch(partition, incarnation)
            self._metrics.warmed.labels(outcome).inc()
            if outcome == "full":
                break
        self._metrics.share_missing.set(0)
        return True

    async def _fetch(self, partition: int, incarnation: str) -> str:
        """What came of it."""
        job = warming(partition, incarnation, self._politely)
        answers: list[Deferred[None]] = []
        try:
            await self._politely()
            await self._fetcher.submit(job, answers)
            await gatherResults(answers, consumeErrors=True)
        except (CancelledError, WorkerGone, Unauthorized):
            self._holdings.forget(job)
            raise
        except NotFound:
            self._holdings.forget(job)
            return "gone"
        except Exception as error:
            self._holdings.forget(job)
            log.warning(
                "a partition was not warmed",
                action="warming_failed",
                partition=partition,
                error=str(error) or repr(error),
            )
            return "failed"
        return "warmed" if self._holdings.warmed(job) else "full"

    async def _politely(self) -> None:
        """Leases come first, for a moment."""
        until = self._reactor.seconds() + POLITE_SECONDS
        while self._is_busy() and self._reactor.seconds() < until:
            await deferLater(self._reactor, LOOK_SECONDS)
