"""Sends results. What is ready while a completion is on its way goes together in the next, and what
is about to be ready is waited for, a moment."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import structlog
from msgspec import UNSET
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tagmill_wire import tracing
from tagmill_wire.messages import Completion, LeaseAnswer, NextLease, PartitionResult, dump
from tagmill_worker.backoff import Backoff
from tagmill_worker.client import Client
from tagmill_worker.errors import Refused, ServerError, Unavailable, UnknownSet, WorkerGone
from tagmill_worker.job import Job
from tagmill_worker.metrics import Metrics

# One transaction of the server's each.
MAX_RESULTS = 64
# The size of one completion as JSON, unless a single result has more: a quarter of what a server
# accepts by default. It holds some 20 partitions of 500 tags.
MAX_BYTES = 4 * 1024 * 1024
# Verdicts of one expression in one partition, which take hardly a byte by a set: the server looks
# at each of them while it holds the partitions. 16 partitions of 500 tags.
MAX_VERDICTS = 8_000
# Answers of 500 and the like before the results are given up: what the server fails on once more
# would keep all later results waiting. A 503, or none, says nothing about the results.
SEND_ATTEMPTS = 8
# A completion costs the server some 10 ms, however little it brings; a warm partition takes 1 ms.
LINGER_SECONDS = 0.1
TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE

log = structlog.get_logger("tagmill_worker.completer")


class _Item(NamedTuple):
    """`size`: the result's bytes as JSON; `verdicts`: the expressions that it is of. The job has
    the incarnation that the result is of."""

    job: Job
    result: PartitionResult
    size: int
    verdicts: int


class Completer:
    """`completed` is called once for each job, with what the server refused it for, or None.

    After WorkerGone the results are dropped and `gone` is called. `expects` says whether more
    results are on their way. `unwanted` gets leases that nobody waits for any more.
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
        unwanted: Callable[[LeaseAnswer], None],
    ) -> None:
        self.worker = ""
        self._reactor = reactor
        self._client = client
        self._metrics = metrics
        self._completed = completed
        self._gone = gone
        self._expects = expects
        self._unwanted = unwanted
        self._asking: tuple[NextLease, Deferred[LeaseAnswer | None]] | None = None
        self._ready: list[_Item] = []
        self._sending: list[_Item] = []
        self._most_bytes = MAX_BYTES
        self._is_running = False
        self._lingering: Deferred[None] | None = None

    def has(self, job: Job) -> bool:
        """Whether its result waits or is on its way."""
        return any(job is item.job for item in (*self._ready, *self._sending))

    def keep(self, incarnation: str) -> None:
        """Forget the results of any other. One on its way names its own, and is refused."""
        self._ready = [item for item in self._ready if item.job.incarnation == incarnation]

    def along(self, asked: NextLease) -> Deferred[LeaseAnswer | None] | None:
        """Ask for leases with the results that wait here for more; they go at once. None where none
        do. The answer is None where it did not come at the first attempt."""
        lingering = self._lingering
        if lingering is None or lingering.called or not self._ready or self._asking is not None:
            return None
        answer: Deferred[LeaseAnswer | None] = Deferred(lambda _: None)
        self._asking = asked, answer
        lingering.callback(None)
        return answer

    def add(self, job: Job, result: PartitionResult, verdicts: int = 0) -> None:
        """`verdicts`: the expressions that it is of."""
        self._ready.append(_Item(job, result, len(dump(result)), verdicts))
        lingering = self._lingering
        if lingering is not None and not lingering.called and self._is_enough:
            lingering.callback(None)
        if not self._is_running:
            self._is_running = True
            Deferred.fromCoroutine(self._run())

    @property
    def _is_enough(self) -> bool:
        return (
            len(self._ready) >= MAX_RESULTS
            or sum(item.size for item in self._ready) >= self._most_bytes
            or sum(item.verdicts for item in self._ready) >= MAX_VERDICTS
            or not self._expects()
        )

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
                if not self._ready:
                    break
                self._sending = self._cut()
                worker = self.worker
                error = await self._send()
                sent, self._sending = self._sending, []
                if isinstance(error, WorkerGone):
                    # Somebody else may have heard it first, and have registered again.
                    if worker == self.worker:
                        self._gone()
                    continue
                if isinstance(error, Refused) and error.status == TOO_LARGE:
                    if len(sent) > 1:
                        self._shorten(sent)
                        continue
                    error = _explained(error, sent[0])
                if isinstance(error, UnknownSet) and any(_is_by_set(item) for item in sent):
                    self._spell_out(sent)
                    continue
                for item in sent:
                    self._completed(item.job, error)
        finally:
            self._is_running = False

    def _cut(self) -> list[_Item]:
        """The next completion, taken off what is ready: at least one result."""
        size, verdicts, count = self._ready[0].size, self._ready[0].verdicts, 1
        incarnation = self._ready[0].job.incarnation
        for item in self._ready[1:MAX_RESULTS]:
            size += item.size
            verdicts += item.verdicts
            if size > self._most_bytes or verdicts > MAX_VERDICTS:
                break
            if item.job.incarnation != incarnation:
                break
            count += 1
        taken = self._ready[:count]
        del self._ready[:count]
        return taken

    def _shorten(self, sent: list[_Item]) -> None:
        """What was too large goes again in smaller completions, and so does all that follows."""
        self._most_bytes = sum(item.size for item in sent) // 2
        self._ready[:0] = sent
        log.warning(
            "a completion was too large for the server; sending smaller ones",
            action="completion_halved",
            results=len(sent),
            bytes=self._most_bytes,
        )

    def _spell_out(self, sent: list[_Item]) -> None:
        """The server does not know a set any more: these results go again, by expression."""
        results = [(item, item.job.result(by_set=False)) for item in sent]
        self._ready[:0] = [
            item._replace(result=result, size=len(dump(result))) for item, result in results
        ]
        log.warning(
            "the server does not know the expression set; sending expressions",
            action="set_unknown",
            results=len(sent),
        )

    async def _send(self) -> ServerError | None:
        backoff = Backoff()
        failures = 0
        incarnation = self._sending[0].job.incarnation
        results = [item.result for item in self._sending]
        place, *others = sorted({item.job.trace for item in self._sending} - {""}) or [""]
        while True:
            asking, self._asking = self._asking, None
            asked = None if asking is None else asking[0]
            try:
                with tracing.span("complete", place, others, results=len(results)):
                    answer = await self._client.complete(
                        Completion(self.worker, incarnation, results, asked)
                    )
            except Unavailable as error:
                self._answer(asking, None)
                failures += error.is_failure
                if failures == SEND_ATTEMPTS:
                    return error
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
                self._answer(asking, None)
                return error
            else:
                self._answer(asking, answer.next)
                for outcome in answer.results:
                    self._metrics.completions.labels(outcome.outcome).inc()
                return None

    def _answer(
        self,
        asking: tuple[NextLease, Deferred[LeaseAnswer | None]] | None,
        answer: LeaseAnswer | None,
    ) -> None:
        if asking is None:
            return
        if not asking[1].called:
            asking[1].callback(answer)
        elif answer is not None and answer.leases:
            self._unwanted(answer)


def _is_by_set(item: _Item) -> bool:
    return item.result.set is not UNSET


def _explained(error: Refused, item: _Item) -> Refused:
    """The 413 for a single result, with what to do about it: a proxy's does not say."""
    return Refused(
        error.status,
        error.code,
        f"its result alone has {item.size} bytes: raise TAGMILL_REQUEST_BYTES on the server, or the"
        f" limit of a proxy in between ({error})",
    )
