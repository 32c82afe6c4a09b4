"""A leased partition's pages: fetched one by one, and handed to the child as they come."""

from __future__ import annotations

import itertools
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tagmill_worker.backoff import Backoff
from tagmill_worker.client import Client
from tagmill_worker.errors import AnswerTooLarge, ProtocolError, Unavailable
from tagmill_worker.evaluators.process import EvaluatorProcess
from tagmill_worker.holdings import Holdings
from tagmill_worker.job import Job
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page
from tagmill_worker.session import Session
from tagmill_worker.settings import Settings

# Attempts for one page; then the partition goes back, perhaps to a worker with a better path.
FETCH_ATTEMPTS = 8


class Fetcher:
    """Pages are as large as the settings and the session's registration both allow."""

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        client: Client,
        session: Session,
        evaluator: EvaluatorProcess,
        *,
        holdings: Holdings,
        metrics: Metrics,
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._client = client
        self._session = session
        self._evaluator = evaluator
        self._holdings = holdings
        self._metrics = metrics

    async def submit(self, job: Job, answers: list[Deferred[None]]) -> None:
        """`answers` gets what fires when a page is evaluated, also where a later one fails."""
        after: int | None = None
        learn = job.lease.vocabulary_rev
        path = "documents" if job.held is None else "hot"
        needs_pages = bool(job.full) or job.learns_held
        if job.held is not None and job.held.is_on_disk and needs_pages:
            await self._evaluator.below(1 << 30, self._settings.prefetch)
            path = "warm" if await self._holdings.read(job) else "documents"
        if job.since is None:
            await self._evaluator.below(1 << 30, self._settings.prefetch)
            path = "shared" if await self._holdings.read_shared(job) else "documents"
        self._metrics.paths.labels(path).inc()
        while not job.is_current:
            if job.politely is not None:
                await job.politely()
            await self._evaluator.below(1 << 30, self._settings.prefetch)
            page = job.brought or await self._page(job, after)
            job.pages.append(page)
            if not page.is_empty:
                done = self._evaluator.submit(job.pass_, page, job.everything, learn)
                answers.append(done.addCallback(job.fetched))
            after = page.next
            if after is None:
                break
        if job.held is not None and (job.full or job.learns_held or job.pass_.is_warming):
            if not job.learns_held:
                learn = None
            # Newest first: the child takes a slot from the first page that names it.
            for page in reversed(job.held.pages):
                packed = job.packed.pop(page.key, b"")
                done = self._evaluator.submit(job.pass_, page, job.full, learn, packed)
                answers.append(done.addCallback(job.add))

    async def _page(self, job: Job, after: int | None) -> Page:
        registered = self._session.registered
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
                await deferLater(self._reactor, backoff.next(error.retry_after))
                continue
            if page.next is not None and after is not None and page.next <= after:
                raise ProtocolError(f"page {page.next} follows page {after}")
            break
        self._metrics.batch_bytes.observe(page.size)
        return page


def _one_node(after: int | None, error: AnswerTooLarge) -> str:
    """What an operator needs to mend it: nothing else ends it."""
    where = "the first node" if after is None else f"the first node after slot {after}"
    return (
        f"{where} has more documents than a worker takes ({error}): delete probes of it, or upload"
        " smaller documents, which TAGMILL_DOCUMENT_BYTES on the server bounds"
    )
