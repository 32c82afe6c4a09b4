"""The worker's life: register, lease, fetch, evaluate, complete, until stopped.

Three activities share the reactor: leasing and fetching (`run`), completing (`_completer`) and
the heartbeat (`_session`). A lease is asked for when the one before is fetched and nearly
evaluated, so that the child never waits for the network and no partition waits here while another
worker is idle.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import structlog
from msgspec import UNSET, UnsetType
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tagmill_wire import tracing
from tagmill_wire.messages import (
    CHANGES_SINCE,
    NEXT_SINCE,
    SETS_SINCE,
    SHARES_SINCE,
    LeaseAnswer,
    LeaseRequest,
    NextLease,
    Pace,
    Registered,
)
from tagmill_worker.cache import start
from tagmill_worker.cache.shared import Shared
from tagmill_worker.client import Client
from tagmill_worker.completer import Completer
from tagmill_worker.errors import (
    NotFound,
    ProtocolError,
    Refused,
    ServerError,
    Unauthorized,
    Unavailable,
    WorkerGone,
)
from tagmill_worker.evaluators.child_process import ChildOptions
from tagmill_worker.evaluators.process import EvaluatorProcess
from tagmill_worker.fetching import Fetcher
from tagmill_worker.former import Former
from tagmill_worker.holdings import Holdings
from tagmill_worker.job import Job, plan
from tagmill_worker.jobs import Jobs
from tagmill_worker.metrics import Metrics
from tagmill_worker.session import Session
from tagmill_worker.sets import DefinedSet, Sets
from tagmill_worker.settings import Settings
from tagmill_worker.shares import Shares
from tagmill_worker.store import Store

# Below common idle timeouts of proxies.
WAIT_SECONDS = 25
# The next lease is asked for when what is left takes no longer than this, which is a few round
# trips; or no more pages than these.
LOW_WATER_SECONDS = 0.1
LOW_WATER_PAGES = 2
# Named in a lease request; the server reads 1 MiB of it.
MAX_HOLDS = 50_000
MAX_NAMED = 5_000
# The server takes no more.
MAX_ROOM = 2**50

log = structlog.get_logger("workers")


def _ended(result: Any, span: tracing.Span, job: Job) -> Any:
    is_failure = isinstance(result, Failure)
    error = result.getErrorMessage() if is_failure else ""
    span.end(error=error, documents=job.documents, expressions=len(job.everything))
    return result


class Worker:
    """`run` answers when the worker has stopped. Methods are called on the reactor's thread."""

    def __init__(self, reactor: Any, settings: Settings, client: Client, metrics: Metrics) -> None:
        self._reactor = reactor
        self._settings = settings
        self._client = client
        self._metrics = metrics
        options = ChildOptions(
            settings.evaluator, settings.image_bytes, settings.shadow, settings.evaluation_bytes
        )
        self.tier = start.make(reactor, settings, metrics, self._leased)
        images = self.tier.images if self.tier else None
        self.evaluator = EvaluatorProcess(reactor, options, metrics, self._fail, images)
        store = Store(settings.store_bytes, reactor.seconds, self.evaluator.forget)
        shared = Shared(reactor, client, metrics, settings.evaluator) if self.tier else None
        self._holdings = Holdings(store, metrics, self.evaluator, self.tier, shared)
        self.flusher = start.flusher(reactor, settings, metrics, self.tier, shared)
        self._session = Session(
            reactor,
            settings,
            client,
            metrics,
            leases=lambda: list(self._jobs),
            epoch=self._epoch,
            told=self._told,
            lost=self._lost,
            gone=self._gone,
            failed=self._fail,
        )
        self._sets = Sets(reactor, client, metrics)
        self._completer = Completer(
            reactor,
            client,
            metrics,
            self._completed,
            self._gone,
            expects=lambda: self.evaluator.backlog > 0,
            unwanted=self._unwanted,
        )
        self._jobs = Jobs(
            self.evaluator,
            self._holdings,
            self._session,
            self._completer,
            metrics=metrics,
            fatal=self._fail,
        )
        self._fetcher = Fetcher(
            reactor,
            settings,
            client,
            self._session,
            self.evaluator,
            holdings=self._holdings,
            metrics=metrics,
        )
        self._shares = Shares(
            reactor,
            client,
            self._session,
            self._fetcher,
            self._holdings,
            former=Former(reactor, settings.cache_dir),
            metrics=metrics,
            room=self._room,
            is_busy=lambda: bool(self._jobs) or self.evaluator.backlog > 0,
        )
        self._interruptible: Deferred[Any] | None = None
        self._error: Exception | None = None

    async def run(self) -> None:
        """Raises Unauthorized, EvaluatorBroken, or what else ended it early."""
        self.evaluator.start()
        if self.flusher is not None:
            self.flusher.start()
        try:
            while not self._session.is_stopping:
                try:
                    await self._interrupted(self._next_leases())
                except WorkerGone:
                    self._gone()
                except CancelledError:
                    continue
                for job in self._jobs.all():
                    if job.fetching is None and not job.is_abandoned:
                        job.fetching = Deferred.fromCoroutine(self._fetch(job))
                        await job.fetching
            await self._drain()
        finally:
            self._session.end_heartbeat()
            self._shares.end()
            await self._shares.left()
            if self.flusher is not None:
                self.flusher.stop()
            if self.tier is not None:
                await self.tier.upkeep.close()
            await self.evaluator.stop()
            await self._client.close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Drain: no new lease, finish what is under evaluation, give the rest back."""
        if not self._session.is_stopping:
            log.info("draining", action="draining", leases=len(self._jobs))
        self._session.is_stopping = True
        self._shares.leave()
        running = [job for job in self._jobs.all() if not self._completer.has(job)]
        for number, job in enumerate(running):
            if number or not job.pages:
                self._jobs.abandon(job, "the worker is stopping", give_back=True)
        self._interrupt()

    # -- leasing ---------------------------------------------------------------------------------

    async def _next_leases(self) -> None:
        """Waits for room and for work; adds to `_jobs`."""
        if pause := self._jobs.take_pause():
            await deferLater(self._reactor, pause)
        registered = self._session.registered or await self._register()
        pages = max(LOW_WATER_PAGES, self.evaluator.pages_in(LOW_WATER_SECONDS))
        await self.evaluator.below(pages, self._settings.prefetch)
        answer = await self._along(registered)
        if answer is None or not answer.leases:
            registered = self._session.registered or await self._register()
            request = LeaseRequest(registered.worker, *self._wanted(registered))
            answer = await self._session.persistently(
                "lease", lambda: self._client.lease(request, WAIT_SECONDS)
            )
        if answer.evaluation_seconds is not None:
            # A server that was started anew may allow another time.
            self.evaluator.evaluation_seconds = answer.evaluation_seconds
        self._shares.told(answer.epoch)
        self._metrics.leases.inc(len(answer.leases))
        if answer.leases and answer.incarnation != registered.incarnation:
            raise WorkerGone("a lease of another incarnation")
        try:
            live = await self._sets.named_in(answer)
        except (NotFound, Refused, Unavailable) as error:
            # As where a batch cannot be fetched. The next lease may name another set.
            log.error("leases are given back", action="given_up", error=str(error))
            self._return(answer, str(error))
            self._jobs.pause()
            return
        except CancelledError:
            self._unwanted(answer)
            raise
        await self._plan(answer, registered.incarnation, live)

    async def _plan(self, answer: LeaseAnswer, incarnation: str, live: DefinedSet | None) -> None:
        for lease in answer.leases:
            held = self._holdings.get(lease.partition)
            try:
                job = plan(lease, answer.expressions, held, incarnation, live)
                job.trace = self._client.place(lease.lease)
                self._jobs.add(job)
            except ProtocolError as error:
                await self._session.give_back([lease.lease], str(error))
                self._jobs.pause()

    def _leased(self) -> set[int]:
        """The partitions of the jobs."""
        return {job.lease.partition for job in self._jobs.all()}

    async def _along(self, registered: Registered) -> LeaseAnswer | None:
        """The answer where results are about to be sent, which take the question along."""
        if registered.protocol < NEXT_SINCE:
            return None
        asked = self._completer.along(NextLease(*self._wanted(registered)))
        return None if asked is None else await asked

    def _wanted(
        self, registered: Registered
    ) -> tuple[
        int, list[int], list[str] | None, Pace, bool | UnsetType, int | UnsetType, bool | UnsetType
    ]:
        """What a request for leases says, beside the worker."""
        return (
            self._settings.max_partitions,
            self._holdings.partitions()[:MAX_HOLDS],
            list(self._jobs) if len(self._jobs) <= MAX_NAMED else None,
            self.evaluator.pace,
            True if registered.protocol >= SETS_SINCE else UNSET,
            self._epoch(),
            True if registered.protocol >= CHANGES_SINCE else UNSET,
        )

    def _epoch(self) -> int | UnsetType:
        """The share's that is known, where the server speaks of any."""
        registered = self._session.registered
        speaks = registered is not None and registered.protocol >= SHARES_SINCE
        return self._shares.epoch if speaks else UNSET

    def _told(self, epoch: int | UnsetType) -> None:
        self._shares.told(epoch)

    def _room(self) -> int:
        """The bytes that the worker offers to hold."""
        has_cache = self.tier is not None and self.tier.upkeep.is_on
        on_disk = self._settings.cache_bytes if has_cache else 0
        room = self._settings.offered * max(on_disk, self._settings.store_bytes)
        return min(MAX_ROOM, int(room))

    def _unwanted(self, answer: LeaseAnswer) -> None:
        """They came when nobody waited for them any more: the worker stops, or registers anew."""
        self._return(answer, "the worker is stopping")

    def _return(self, answer: LeaseAnswer, reason: str) -> None:
        self._jobs.give_back([lease.lease for lease in answer.leases], reason)

    async def _register(self) -> Registered:
        registered = await self._session.register()
        if await self._holdings.adopt(registered.incarnation):
            self._completer.keep(registered.incarnation)
        self.evaluator.evaluation_seconds = registered.evaluation_seconds
        self._completer.worker = registered.worker
        self._shares.begin(registered)
        return registered

    # -- fetching --------------------------------------------------------------------------------

    async def _fetch(self, job: Job) -> None:
        """Fetch a partition's pages and hand each to the child as it comes. Raises nothing."""
        error: Exception | None = None
        answers: list[Deferred[None]] = []
        job.is_fetching = True
        partition = job.lease.partition
        evaluating = tracing.begin("evaluate", job.trace, partition=partition)
        try:
            with tracing.span("fetch", job.trace, partition=partition):
                await self._fetcher.submit(job, answers)
            self._holdings.keep(job)
        except Exception as raised:
            error = raised
        job.is_fetching = False
        # What was submitted ends with the job; nobody else looks at its errors.
        gathered = gatherResults(answers, consumeErrors=True)
        if evaluating is not None:
            gathered.addBoth(_ended, evaluating, job)
        if error is None:
            gathered.addCallback(lambda _: self._jobs.evaluated(job))
            gathered.addErrback(lambda why: self._jobs.page_failed(job, why))
            return
        gathered.addErrback(lambda _: None)
        if isinstance(error, NotFound):
            self._holdings.drop(job.lease.partition)
        if isinstance(error, Unauthorized):
            self._fail(error)
        elif job.is_abandoned:
            pass
        elif isinstance(error, WorkerGone):
            self._gone()
        else:
            self._jobs.failed(job, error)

    def _completed(self, job: Job, error: ServerError | None) -> None:
        self._jobs.completed(job, error)

    # -- what the server says --------------------------------------------------------------------

    def _lost(self, leases: list[str]) -> None:
        for lease in leases:
            job = self._jobs.get(lease)
            # A result on its way is welcome all the same.
            if job is not None and not self._completer.has(job):
                log.warning("a lease was lost", action="lease_lost", lease=lease)
                self._jobs.abandon(job, "", give_back=False)

    def _gone(self) -> None:
        """The server forgot this worker: its leases are lost. Whether what it holds stays good, the
        next registration says."""
        log.warning("the server forgot this worker", action="worker_gone")
        self._session.registered = None
        self._shares.end()
        for job in self._jobs.all():
            self._jobs.abandon(job, "", give_back=False)
        self._interrupt()

    # -- the end ---------------------------------------------------------------------------------

    async def _drain(self) -> None:
        if self._error is None:
            await self._jobs.ended(self._settings.drain_seconds, self._reactor)
        for job in self._jobs.all():
            self._jobs.abandon(job, "the worker is stopping", give_back=True)
        await self._jobs.given_back()

    def _fail(self, error: Exception) -> None:
        """There is no point in going on."""
        self._error = self._error or error
        self._session.is_stopping = True
        self._jobs.end_waiting()
        for job in self._jobs.all():
            if job.is_fetching and job.fetching is not None:
                job.fetching.cancel()
        self._interrupt()

    # -- waiting ---------------------------------------------------------------------------------

    async def _interrupted(self, work: Coroutine[Any, Any, None]) -> None:
        """`work`, which `_interrupt` cancels."""
        self._interruptible = Deferred.fromCoroutine(work)
        try:
            await self._interruptible
        finally:
            self._interruptible = None

    def _interrupt(self) -> None:
        if self._interruptible is not None:
            self._interruptible.cancel()
