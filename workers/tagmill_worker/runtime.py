"""The worker's life: register, lease, fetch, evaluate, complete, until stopped.

Three activities share the reactor: leasing and fetching (`run`), completing (`_completer`) and
the heartbeat. A lease is asked for when the one before is fetched and nearly evaluated, so that the
child never waits for the network and no partition waits here while another worker is idle.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    FirstError,
    TimeoutError,
    gatherResults,
)
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure

from tagmill_wire import __version__
from tagmill_wire.messages import GiveUp, Heartbeat, LeaseRequest, Register, Registered
from tagmill_worker import job as jobs
from tagmill_worker import logs
from tagmill_worker.backoff import Backoff
from tagmill_worker.client import Client
from tagmill_worker.completer import Completer
from tagmill_worker.errors import (
    AnswerTooLarge,
    EvaluatorError,
    NotFound,
    ProtocolError,
    Refused,
    ServerError,
    Unauthorized,
    Unavailable,
    WorkerError,
    WorkerGone,
)
from tagmill_worker.evaluators.process import ChildOptions, EvaluatorProcess
from tagmill_worker.job import Job
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page
from tagmill_worker.settings import Settings
from tagmill_worker.store import Store

T = TypeVar("T")

# Below common idle timeouts of proxies.
WAIT_SECONDS = 25
# The next lease is asked for when what is left takes no longer than this, which is a few round
# trips; or no more pages than these.
LOW_WATER_SECONDS = 0.1
LOW_WATER_PAGES = 2
# Named in a lease request; the server reads 1 MiB of it.
MAX_HOLDS = 50_000
MAX_NAMED = 5_000
# Attempts for one page; then the partition goes back, perhaps to a worker with a better path.
FETCH_ATTEMPTS = 8
# Seconds before a partition that the child did not get through may be leased again: twice as many
# each time.
FIRST_DELAY, MAX_DELAY = 5, 600
# The length of the host's name, as the server stores it.
MAX_HOST = 256
# A lease that is not given back ends by the server's clock anyway.
GIVE_UP_SECONDS = 5.0

log = structlog.get_logger("workers")


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
        self.evaluator = EvaluatorProcess(reactor, options, metrics, self._fail)
        self._store = Store(settings.store_bytes, reactor.seconds, self.evaluator.forget)
        self._registered: Registered | None = None
        self._incarnation = ""
        self._jobs: dict[str, Job] = {}
        self._interruptible: Deferred[Any] | None = None
        self._is_stopping = False
        self._error: Exception | None = None
        self._trouble = Backoff()
        # How often each partition could not be evaluated, since it last could.
        self._unfinished: Counter[int] = Counter()
        self._pause = 0.0
        self._completer = Completer(
            reactor,
            client,
            metrics,
            self._completed,
            self._gone,
            expects=lambda: self.evaluator.backlog > 0,
        )
        self._heart = LoopingCall(self._beat)
        self._heart.clock = reactor
        self._idle: Deferred[None] | None = None
        self._giving: list[Deferred[None]] = []

    async def run(self) -> None:
        """Raises Unauthorized, EvaluatorBroken, or what else ended it early."""
        self.evaluator.start()
        try:
            while not self._is_stopping:
                try:
                    await self._interrupted(self._next_leases())
                except WorkerGone:
                    self._gone()
                except CancelledError:
                    continue
                for job in list(self._jobs.values()):
                    if job.fetching is None and not job.is_abandoned:
                        job.fetching = Deferred.fromCoroutine(self._fetch(job))
                        await job.fetching
            await self._drain()
        finally:
            if self._heart.running:
                self._heart.stop()
            await self.evaluator.stop()
            await self._client.close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Drain: no new lease, finish what is under evaluation, give the rest back."""
        if not self._is_stopping:
            log.info("draining", action="draining", leases=len(self._jobs))
        self._is_stopping = True
        running = [job for job in self._jobs.values() if not self._completer.has(job)]
        for number, job in enumerate(running):
            if number or not job.pages:
                self._abandon(job, "the worker is stopping", give_back=True)
        self._interrupt()

    # -- leasing ---------------------------------------------------------------------------------

    async def _next_leases(self) -> None:
        """Waits for room and for work; adds to `_jobs`."""
        pause, self._pause = self._pause, 0.0
        if pause:
            await self._sleep(pause)
        registered = await self._register()
        pages = max(LOW_WATER_PAGES, self.evaluator.pages_in(LOW_WATER_SECONDS))
        await self.evaluator.below(pages, self._settings.prefetch)
        request = LeaseRequest(
            registered.worker,
            self._settings.max_partitions,
            self._store.partitions()[:MAX_HOLDS],
            list(self._jobs) if len(self._jobs) <= MAX_NAMED else None,
        )
        answer = await self._persistently(
            "lease", lambda: self._client.lease(request, WAIT_SECONDS)
        )
        if answer.evaluation_seconds is not None:
            # A server that was started anew may allow another time.
            self.evaluator.evaluation_seconds = answer.evaluation_seconds
        self._metrics.leases.inc(len(answer.leases))
        if answer.leases and answer.incarnation != registered.incarnation:
            raise WorkerGone("a lease of another incarnation")
        for lease in answer.leases:
            held = self._store.get(lease.partition)
            try:
                planned = jobs.plan(lease, answer.expressions, held, registered.incarnation)
                self._jobs[lease.lease] = planned
            except ProtocolError as error:
                await self._give_back([lease.lease], str(error))
                self._pause = self._trouble.next()

    async def _register(self) -> Registered:
        if self._registered is None:
            host, pid = socket.gethostname(), os.getpid()
            message = Register(
                self._settings.name, self._settings.evaluator, __version__, host[:MAX_HOST], pid
            )
            registered = await self._persistently(
                "register", lambda: self._client.register(message)
            )
            self._registered = registered
            self._adopt_incarnation(registered.incarnation)
            self.evaluator.evaluation_seconds = registered.evaluation_seconds
            self._completer.worker = registered.worker
            if self._heart.running:
                self._heart.stop()
            self._heart.start(registered.heartbeat_seconds, now=False)
            logs.identify(worker=registered.worker)
            self._metrics.identify(registered.worker, message)
            log.info("registered", action="registered", worker=registered.worker)
        return self._registered

    def _adopt_incarnation(self, incarnation: str) -> None:
        """Whatever was stored in another incarnation of the database is dropped: its revs name
        other documents, its ids other expressions. The jobs ended with the registration before."""
        if incarnation == self._incarnation:
            return
        if self._incarnation:
            log.warning(
                "the database has another history; what was held is dropped",
                action="incarnation_changed",
                partitions=len(self._store),
            )
        self._incarnation = incarnation
        self._store.clear()
        self._completer.keep(incarnation)
        self._measure_store()

    async def _persistently(self, call: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask until there is an answer; other errors than an absent server get out."""
        backoff = Backoff()
        while True:
            try:
                return await ask()
            except (Unavailable, NotFound, Refused) as error:
                if self._is_stopping:
                    # Whatever an interrupted call ends with: nobody waits for its answer.
                    raise CancelledError from None
                # A 404 or a 4xx here is a wrong URL or another version: an operator mends it.
                after = error.retry_after if isinstance(error, Unavailable) else None
                delay = backoff.next(after)
                self._metrics.retries.labels(call).inc()
                log.warning(
                    "no answer; trying again",
                    action="retrying",
                    call=call,
                    error=_explained(error, self._settings.server),
                    delay=round(delay, 3),
                )
                await self._sleep(delay)

    # -- fetching --------------------------------------------------------------------------------

    async def _fetch(self, job: Job) -> None:
        """Fetch a partition's pages and hand each to the child as it comes. Raises nothing."""
        error: Exception | None = None
        answers: list[Deferred[None]] = []
        job.is_fetching = True
        try:
            await self._submit(job, answers)
            self._keep(job)
        except Exception as raised:
            error = raised
        job.is_fetching = False
        # What was submitted ends with the job; nobody else looks at its errors.
        gathered = gatherResults(answers, consumeErrors=True)
        if error is None:
            gathered.addCallback(lambda _: self._evaluated(job))
            gathered.addErrback(lambda why: self._page_failed(job, why))
            return
        gathered.addErrback(lambda _: None)
        if isinstance(error, NotFound):
            self._store.drop(job.lease.partition)
        if isinstance(error, Unauthorized):
            self._fail(error)
        elif job.is_abandoned:
            pass
        elif isinstance(error, WorkerGone):
            self._gone()
        else:
            self._partition_failed(job, error)

    async def _submit(self, job: Job, answers: list[Deferred[None]]) -> None:
        after: int | None = None
        learn = job.lease.vocabulary_rev
        while not job.is_current:
            await self.evaluator.below(1 << 30, self._settings.prefetch)
            page = await self._page(job, after)
            job.pages.append(page)
            if not page.is_empty:
                done = self.evaluator.submit(job.pass_, page, job.everything, learn)
                answers.append(done.addCallback(job.fetched))
            after = page.next
            if after is None:
                break
        if job.held is not None and (job.full or job.learns_held):
            if not job.learns_held:
                learn = None
            # Newest first: the child takes a slot from the first page that names it.
            for page in reversed(job.held.pages):
                done = self.evaluator.submit(job.pass_, page, job.full, learn)
                answers.append(done.addCallback(job.add))

    async def _page(self, job: Job, after: int | None) -> Page:
        registered = self._registered
        backoff = Backoff()
        nodes, size = self._settings.batch_nodes, self._settings.batch_bytes
        if registered is not None:
            nodes, size = min(nodes, registered.batch_nodes), min(size, registered.batch_bytes)
        for attempt in itertools.count(1):
            try:
                page = await self._client.batch(
                    job.lease.partition,
                    incarnation=job.incarnation,
                    since=job.since,
                    after=after,
                    max_nodes=nodes,
                    max_bytes=size,
                )
            except AnswerTooLarge as error:
                # As large the next time, but for a page of fewer nodes.
                if nodes == 1:
                    raise AnswerTooLarge(_one_node(after, error)) from None
                nodes = 1
                continue
            except Unavailable as error:
                if attempt == FETCH_ATTEMPTS or job.is_abandoned:
                    raise
                self._metrics.retries.labels("batch").inc()
                await self._sleep(backoff.next(error.retry_after))
                continue
            if page.next is not None and after is not None and page.next <= after:
                raise ProtocolError(f"page {page.next} follows page {after}")
            break
        self._metrics.batch_bytes.observe(page.size)
        return page

    def _keep(self, job: Job) -> None:
        """Into the store, unless the image was dropped meanwhile."""
        partition = job.lease.partition
        is_kept = False
        if job.is_abandoned or job.incarnation != self._incarnation:
            pass
        elif job.since is None:
            is_kept = self._store.admit(partition, job.pages)
        elif job.held is not None and self._store.get(partition) is job.held:
            is_kept = True
            if job.pages:
                self._store.apply(partition, job.pages)
        job.is_passing = not is_kept
        self._measure_store()

    def _measure_store(self) -> None:
        self._metrics.store_bytes.set(self._store.size)
        self._metrics.store_partitions.set(len(self._store))

    # -- ends of a job ---------------------------------------------------------------------------

    def _evaluated(self, job: Job) -> None:
        if job.is_abandoned:
            return
        try:
            result = job.result()
        except ProtocolError as error:
            self._store.drop(job.lease.partition)
            self._partition_failed(job, error)
            return
        self._metrics.failures.inc(len(result.failures))
        if job.is_passing:
            self.evaluator.forget(job.pages)
        self._completer.add(job, result)

    def _page_failed(self, job: Job, why: Failure) -> None:
        """A page could not be evaluated: the image is dropped."""
        error = why.value
        if isinstance(error, FirstError):
            error = error.subFailure.value
        if isinstance(error, EvaluatorError):
            self._store.drop(job.lease.partition)
        if not job.is_abandoned:
            self._partition_failed(job, error)

    def _partition_failed(self, job: Job, error: BaseException | None) -> None:
        """Give the partition back, and wait before the next lease: it may be the same one."""
        delay = self._delay(job.lease.partition, error)
        log.error(
            "a partition is given back",
            action="given_up",
            partition=job.lease.partition,
            error=str(error) or repr(error),
            delay=delay,
            exc_info=None if isinstance(error, WorkerError) else error,
        )
        if isinstance(error, Refused):
            # Perhaps a rev that the partition has never had: the next time it is fetched whole.
            self._store.drop(job.lease.partition)
        self._pause = self._trouble.next()
        self._abandon(job, str(error) or repr(error), give_back=True, delay=delay)

    def _delay(self, partition: int, error: BaseException | None) -> int:
        """Seconds for which nobody should be leased the partition: each attempt at what the child
        does not get through costs a child, with all that it holds. An upload ends the delay."""
        if not isinstance(error, EvaluatorError):
            return 0
        times = self._unfinished[partition]
        self._unfinished[partition] += 1
        # A shift of so many bits is beyond MAX_DELAY.
        return min(FIRST_DELAY << min(times, 16), MAX_DELAY)

    def _abandon(self, job: Job, reason: str, *, give_back: bool, delay: int = 0) -> None:
        job.is_abandoned = True
        if job.is_passing:
            self.evaluator.forget(job.pages)
        self._jobs.pop(job.lease.lease, None)
        self._metrics.completions.labels("given_up" if give_back else "lost").inc()
        self.evaluator.cancel(job.pass_)
        if give_back:
            giving = Deferred.fromCoroutine(self._give_back([job.lease.lease], reason, delay))
            self._giving.append(giving)
            giving.addBoth(lambda _: self._giving.remove(giving))
        if job.is_fetching and job.fetching is not None:
            job.fetching.cancel()
        self._look_idle()

    def _completed(self, job: Job, error: ServerError | None) -> None:
        """The server has the result, or does not want it."""
        if job.lease.lease not in self._jobs:
            return
        if error is not None:
            self._partition_failed(job, error)
            if isinstance(error, Unauthorized):
                self._fail(error)
            return
        self._trouble.reset()
        self._unfinished.pop(job.lease.partition, None)
        del self._jobs[job.lease.lease]
        self._look_idle()

    async def _give_back(self, leases: list[str], reason: str, delay: int = 0) -> None:
        if self._registered is None:
            return
        message = GiveUp(self._registered.worker, leases, reason[:500], delay)
        call = Deferred.fromCoroutine(self._client.give_up(message))
        call.addTimeout(GIVE_UP_SECONDS, self._reactor)
        try:
            await call
        except (ServerError, CancelledError, TimeoutError) as error:
            log.warning("leases were not given back", action="give_up_failed", error=str(error))

    # -- the heartbeat ---------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Raises nothing: a missed beat is made up by the next one."""
        registered = self._registered
        if registered is None:
            return
        call = Deferred.fromCoroutine(
            self._client.heartbeat(Heartbeat(registered.worker, list(self._jobs)))
        )
        call.addTimeout(registered.heartbeat_seconds, self._reactor)
        try:
            answer = await call
        except WorkerGone:
            if self._registered is registered:
                self._gone()
        except Unauthorized as error:
            self._fail(error)
        except (ServerError, TimeoutError, CancelledError) as error:
            log.warning("no heartbeat", action="heartbeat_failed", error=str(error))
        else:
            for lease in answer.lost:
                job = self._jobs.get(lease)
                # A result on its way is welcome all the same.
                if job is not None and not self._completer.has(job):
                    log.warning("a lease was lost", action="lease_lost", lease=lease)
                    self._abandon(job, "", give_back=False)

    def _gone(self) -> None:
        """The server forgot this worker: its leases are lost. Whether what it holds stays good, the
        next registration says."""
        log.warning("the server forgot this worker", action="worker_gone")
        self._registered = None
        for job in list(self._jobs.values()):
            self._abandon(job, "", give_back=False)
        self._interrupt()

    # -- the end ---------------------------------------------------------------------------------

    async def _drain(self) -> None:
        if self._error is None and self._jobs:
            self._idle = Deferred()
            self._idle.addTimeout(self._settings.drain_seconds, self._reactor)
            try:
                await self._idle
            except (TimeoutError, CancelledError):
                log.warning("draining took too long", action="drain_timeout")
        for job in list(self._jobs.values()):
            self._abandon(job, "the worker is stopping", give_back=True)
        for call in list(self._giving):
            await call

    def _look_idle(self) -> None:
        if self._idle is not None and not self._idle.called and not self._jobs:
            self._idle.callback(None)

    def _fail(self, error: Exception) -> None:
        """There is no point in going on."""
        self._error = self._error or error
        self._is_stopping = True
        if self._idle is not None and not self._idle.called:
            self._idle.callback(None)
        for job in self._jobs.values():
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

    async def _sleep(self, seconds: float) -> None:
        await deferLater(self._reactor, seconds)


def _explained(error: ServerError, server: str) -> str:
    if not isinstance(error, NotFound):
        return str(error)
    return f"{error}: is {server} (--server) the address of a Tagmill server, without /api/v1?"


def _one_node(after: int | None, error: AnswerTooLarge) -> str:
    """What an operator needs to mend it: nothing else ends it."""
    where = "the first node" if after is None else f"the first node after slot {after}"
    return (
        f"{where} has more documents than a worker takes ({error}): delete probes of it, or upload"
        " smaller documents, which TAGMILL_DOCUMENT_BYTES on the server bounds"
    )
