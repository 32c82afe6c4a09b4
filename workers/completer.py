"""Sends results. What is ready while a completion is on its way goes together in the next, and what
is about to be ready is waited for, a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from wire.messages import Completion, PartitionResult
from workers.backoff import Backoff
from workers.client import Client
from workers.errors import ServerError, Unavailable, WorkerGone
from workers.job import Job
from workers.metrics import Metrics

# One transaction of the server's each.
MOST_RESULTS = 64
# A completion costs the server some 10 ms, however little it brings; a warm partition takes 1 ms.
LINGER_SECONDS = 0.1

log = structlog.get_logger("workers.completer")


class Completer:
    """`completed` is called once for each job, with what the server refused it for, or None.

    After WorkerGone the results are dropped and `gone` is called. `expects` says whether more
    results are on their way.
    """

    def __init__(
        self,
        reactor: Any,
        client: Client,
        metrics: Metrics,
        completed: Callable[[Job, ServerError | None], None],
        gone: Callable[[], None],
        *,
        expects: Callable[[], bool],
    ) -> None:
        self.worker = ""
        self._reactor = reactor
        self._client = client
        self._metrics = metrics
        self._completed = completed
        self._gone = gone
        self._expects = expects
        self._ready: list[tuple[Job, PartitionResult]] = []
        self._sending: list[tuple[Job, PartitionResult]] = []
        self._is_running = False
        self._lingering: Deferred[None] | None = None

    def has(self, job: Job) -> bool:
        """Whether its result waits or is on its way."""
        return any(job is item for item, _ in (*self._ready, *self._sending))

    def add(self, job: Job, result: PartitionResult) -> None:
        self._ready.append((job, result))
        lingering = self._lingering
        if lingering is not None and not lingering.called and self._is_enough:
            lingering.callback(None)
        if not self._is_running:
            self._is_running = True
            Deferred.fromCoroutine(self._run())

    @property
    def _is_enough(self) -> bool:
        return len(self._ready) >= MOST_RESULTS or not self._expects()

    async def _linger(self) -> None:
        """Until nothing more is expected, or LINGER_SECONDS."""
        if self._is_enough:
            return
        lingering: Deferred[None] = Deferred()
        self._lingering = lingering
        timer = self._reactor.callLater(LINGER_SECONDS, lingering.callback, None)
        await lingering
        self._lingering = None
        if timer.active():
            timer.cancel()

    async def _run(self) -> None:
        try:
            while self._ready:
                await self._linger()
                self._sending = self._ready[:MOST_RESULTS]
                del self._ready[:MOST_RESULTS]
                error = await self._send()
                sent, self._sending = self._sending, []
                if isinstance(error, WorkerGone):
                    self._gone()
                    continue
                for job, _ in sent:
                    self._completed(job, error)
        finally:
            self._is_running = False

    async def _send(self) -> ServerError | None:
        backoff = Backoff()
        message = Completion(self.worker, [result for _, result in self._sending])
        while True:
            try:
                answer = await self._client.complete(message)
            except Unavailable as error:
                self._metrics.retries.labels("complete").inc()
                delay = backoff.next(error.retry_after)
                log.warning(
                    "no answer; trying again",
                    action="retrying",
                    call="complete",
                    error=str(error),
                    delay=round(delay, 3),
                )
                await deferLater(self._reactor, delay)
            except ServerError as error:
                return error
            else:
                for outcome in answer.results:
                    self._metrics.completions.labels(outcome.outcome).inc()
                return None
