"""The leased partitions under way, and how each of them ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import structlog
from twisted.internet.defer import CancelledError, Deferred, FirstError, TimeoutError
from twisted.python.failure import Failure

from tagmill_worker.backoff import Backoff, Setbacks
from tagmill_worker.completer import Completer
from tagmill_worker.errors import (
    EvaluatorError,
    ProtocolError,
    Refused,
    ServerError,
    Unauthorized,
    WorkerError,
)
from tagmill_worker.evaluators.process import EvaluatorProcess
from tagmill_worker.holdings import Holdings
from tagmill_worker.job import Job
from tagmill_worker.metrics import Metrics
from tagmill_worker.session import Session

log = structlog.get_logger("workers")


class Jobs:
    """By lease. `fatal` is called with an error after which there is no point in going on."""

    def __init__(
        self,
        evaluator: EvaluatorProcess,
        holdings: Holdings,
        session: Session,
        completer: Completer,
        *,
        metrics: Metrics,
        fatal: Callable[[Exception], None],
    ) -> None:
        self._evaluator = evaluator
        self._holdings = holdings
        self._session = session
        self._completer = completer
        self._metrics = metrics
        self._fatal = fatal
        self._jobs: dict[str, Job] = {}
        self._trouble = Backoff()
        self._setbacks = Setbacks()
        self._pause = 0.0
        self._idle: Deferred[None] | None = None
        self._giving: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        """The leases."""
        return iter(self._jobs)

    def get(self, lease: str) -> Job | None:
        return self._jobs.get(lease)

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def add(self, job: Job) -> None:
        self._jobs[job.lease.lease] = job

    def pause(self) -> None:
        """There was trouble: wait before the next lease, longer each time."""
        self._pause = self._trouble.next()

    def take_pause(self) -> float:
        pause, self._pause = self._pause, 0.0
        return pause

    def evaluated(self, job: Job) -> None:
        if job.is_abandoned:
            return
        try:
            result = job.result()
        except ProtocolError as error:
            self._holdings.drop(job.lease.partition)
            self.failed(job, error)
            return
        self._metrics.failures.inc(len(result.failures))
        self._holdings.evaluated(job)
        self._completer.add(job, result, len(job.pass_.expressions))

    def page_failed(self, job: Job, why: Failure) -> None:
        """A page could not be evaluated: the image is dropped."""
        error = why.value
        if isinstance(error, FirstError):
            error = error.subFailure.value
        if isinstance(error, EvaluatorError):
            self._holdings.drop(job.lease.partition)
        if not job.is_abandoned:
            self.failed(job, error)

    def failed(self, job: Job, error: BaseException | None) -> None:
        """Give the partition back, and wait before the next lease: it may be the same one."""
        is_evaluators = isinstance(error, EvaluatorError)
        delay = self._setbacks.next(job.lease.partition) if is_evaluators else 0
        log.error(
            "a partition is given back",
            action="given_up",
            partition=job.lease.partition,
            error=str(error) or repr(error),
            delay=delay,
            exc_info=None if isinstance(error, WorkerError) else error,
        )
        self._holdings.distrust(job)
        if isinstance(error, Refused):
            # Perhaps a rev that the partition has never had: the next time it is fetched whole.
            self._holdings.drop(job.lease.partition)
        self.pause()
        self.abandon(job, str(error) or repr(error), give_back=True, delay=delay)

    def abandon(self, job: Job, reason: str, *, give_back: bool, delay: int = 0) -> None:
        job.is_abandoned = True
        self._evaluator.forget(job.passing)
        self._jobs.pop(job.lease.lease, None)
        self._metrics.completions.labels("given_up" if give_back else "lost").inc()
        self._evaluator.cancel(job.pass_)
        if give_back:
            self.give_back([job.lease.lease], reason, delay)
        if job.is_fetching and job.fetching is not None:
            job.fetching.cancel()
        self._look_idle()

    def give_back(self, leases: list[str], reason: str, delay: int = 0) -> None:
        giving = Deferred.fromCoroutine(self._session.give_back(leases, reason, delay))
        self._giving.append(giving)
        giving.addBoth(lambda _: self._giving.remove(giving))

    def completed(self, job: Job, error: ServerError | None) -> None:
        """The server has the result, or does not want it."""
        if job.lease.lease not in self._jobs:
            return
        if error is not None:
            self.failed(job, error)
            if isinstance(error, Unauthorized):
                self._fatal(error)
            return
        self._trouble.reset()
        self._setbacks.reset(job.lease.partition)
        del self._jobs[job.lease.lease]
        self._look_idle()

    # -- the end ---------------------------------------------------------------------------------

    async def ended(self, seconds: float, reactor: Any) -> None:
        """Waits until there is no job left, for so many seconds at most."""
        if not self._jobs:
            return
        self._idle = Deferred()
        self._idle.addTimeout(seconds, reactor)
        try:
            await self._idle
        except (TimeoutError, CancelledError):
            log.warning("draining took too long", action="drain_timeout")

    def end_waiting(self) -> None:
        if self._idle is not None and not self._idle.called:
            self._idle.callback(None)

    async def given_back(self) -> None:
        for call in list(self._giving):
            await call

    def _look_idle(self) -> None:
        if not self._jobs:
            self.end_waiting()
