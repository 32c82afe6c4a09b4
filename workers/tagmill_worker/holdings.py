"""The images that the worker holds, in one incarnation of the database.

A partition is taken from the nearest place that has it: the store (memory), the cache (disk), what
another worker has shared, the server's documents.
"""

from __future__ import annotations

import structlog
from twisted.internet.defer import Deferred

from tagmill_worker.cache.shared import Shared
from tagmill_worker.cache.tier import Tier
from tagmill_worker.evaluators.process import EvaluatorProcess
from tagmill_worker.job import Job
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page
from tagmill_worker.store import Image, Store

# Jobs whose images wait to be saved: they hold their pages.
MAX_SAVING = 16

log = structlog.get_logger("workers")


class Holdings:
    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        evaluator: EvaluatorProcess,
        tier: Tier | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.incarnation = ""
        self._store = store
        self._metrics = metrics
        self._evaluator = evaluator
        self._tier = tier
        self._shared = shared
        self._saving = 0

    def partitions(self) -> list[int]:
        held = self._store.partitions()
        if self._tier is not None:
            held += [key for key in self._tier.partitions() if key not in self._store]
        return held

    def get(self, partition: int) -> Image | None:
        """Asked for a lease. The image's pages may have to be read."""
        image = self._store.get(partition)
        if self._tier is None:
            return image
        self._tier.touch(partition)
        rev = self._tier.rev(partition)
        if image is None and rev is not None:
            image = Image(rev, [], 0, 0, is_on_disk=True)
        return image

    def has(self, partition: int) -> bool:
        """Whether it need not be fetched whole."""
        on_disk = self._tier is not None and self._tier.has(partition)
        return on_disk or partition in self._store

    def drop(self, partition: int) -> None:
        self._store.drop(partition)
        if self._tier is not None:
            self._tier.drop(partition)

    def distrust(self, job: Job) -> None:
        """It could not be evaluated: the next attempt is without what another worker shared."""
        if job.shared and self._shared is not None:
            self._shared.distrust(job.shared)
            self.drop(job.lease.partition)

    async def adopt(self, incarnation: str) -> bool:
        """Whatever was stored in another incarnation of the database is dropped: its revs name
        other documents, its ids other expressions. The jobs ended with the registration before.
        Whether it is another."""
        is_other = incarnation != self.incarnation
        if is_other:
            if self.incarnation:
                log.warning(
                    "the database has another history; what was held is dropped",
                    action="incarnation_changed",
                    partitions=len(self._store),
                )
            self.incarnation = incarnation
            self._store.clear()
            self._measure()
        if self._tier is not None and self._tier.incarnation != incarnation:
            await self._tier.open(incarnation)
        return is_other

    async def read(self, job: Job) -> bool:
        """The pages of an image that is on the disk; where that is not so after all, the job goes
        on without it. Whether it is."""
        partition = job.lease.partition
        found = None
        if self._tier is not None and job.incarnation == self._tier.incarnation:
            found = await self._tier.read(partition)
        if found is None or found[0] < (job.held_rev or 0):
            job.without_held()
            return False
        rev, pages = found
        image = Image.of(pages) if pages else Image(rev, [], 0, 0)
        image.rev = rev
        job.held = image
        job.was_read = True
        is_taken = job.incarnation == self.incarnation and self._take(partition, image)
        job.is_held_passing = not is_taken
        self._measure()
        return True

    async def read_shared(self, job: Job) -> bool:
        """What another worker has shared of a partition of which nothing is held. Whether it did.
        Raises WorkerGone, Unauthorized and CancelledError."""
        if self._shared is None or job.is_abandoned:
            return False
        partition = job.lease.partition
        found = await self._shared.fetch(partition, job.incarnation)
        if found is None or job.is_abandoned:
            return False
        name, bundle = found
        image = Image.of(bundle.pages) if bundle.pages else Image(0, [], 0, 0)
        image.rev = bundle.rev
        job.with_shared(name, image, bundle.packed)
        is_current = job.incarnation == self.incarnation
        job.is_held_passing = not (is_current and self._take(partition, image))
        if is_current and self._tier is not None:
            job.written = self._tier.put(partition, bundle.rev, bundle.pages, is_shared=True)
        self._measure()
        return True

    def keep(self, job: Job) -> None:
        """Into the store, unless the image was dropped meanwhile."""
        partition = job.lease.partition
        is_kept = False
        if job.is_abandoned or job.incarnation != self.incarnation:
            pass
        elif job.since is None:
            is_kept = self._store.admit(partition, job.pages)
            self._write_whole(job, job.rev, job.pages)
        elif job.held is not None:
            is_kept = self._store.get(partition) is job.held and not job.is_overtaken
            if is_kept and job.pages:
                self._store.apply(partition, job.pages)
            self._write_delta(job)
        job.is_passing = not is_kept
        self._measure()

    def evaluated(self, job: Job) -> None:
        """All its pages are: their images can be saved, and those that pass can go."""
        is_new = job.written is not None or job.was_read
        can_save = self._tier is not None and self._evaluator.saves_images
        if not is_new or not can_save or self._saving >= MAX_SAVING:
            self._evaluator.forget(job.passing)
            return
        self._saving += 1
        done = Deferred.fromCoroutine(self._save_images(job))
        done.addErrback(lambda failure: log.error("images were not saved", exc_info=failure.value))

    def warmed(self, job: Job) -> bool:
        """As `keep` and `evaluated`, of a partition that no lease is about: what a lease has left
        here meanwhile is as good. Whether the partition is held."""
        if self.has(job.lease.partition) and job.since is None:
            self.forget(job)
            return True
        self.keep(job)
        self.evaluated(job)
        return self.has(job.lease.partition)

    def forget(self, job: Job) -> None:
        """The child need not keep what it has of the job's pages."""
        job.is_abandoned = True
        self._evaluator.cancel(job.pass_)
        self._evaluator.forget(job.passing)

    # -- the cache -------------------------------------------------------------------------------

    def _take(self, partition: int, image: Image) -> bool:
        """Into memory, from the cache, if nothing newer came meanwhile."""
        return self._store.get(partition) is None and self._store.take(partition, image)

    def _write_whole(self, job: Job, rev: int, pages: list[Page]) -> None:
        if self._tier is not None:
            kept = [page for page in pages if not page.is_empty]
            job.written = self._tier.put(job.lease.partition, rev, kept)

    def _write_delta(self, job: Job) -> None:
        """Or all of it, where the cache has nothing to add it to."""
        if self._tier is None or job.since is None:
            return
        partition = job.lease.partition
        image = self._store.get(partition)
        if self._tier.has(partition):
            if job.pages:
                kept = [page for page in job.pages if not page.is_empty]
                job.written = self._tier.extend(partition, job.since, job.rev, kept)
        elif image is not None:
            self._write_whole(job, image.rev, image.pages)

    async def _save_images(self, job: Job) -> None:
        try:
            tier = self._tier
            if tier is None or (job.written is not None and not await job.written):
                return
            await tier.settled()
            held = job.held.pages if job.held is not None else []
            for page in [*held, *job.pages]:
                stem = None if page.is_empty else tier.images.wanted(page)
                if stem is not None:
                    await self._evaluator.save(page, stem)
        finally:
            self._saving -= 1
            self._evaluator.forget(job.passing)

    def _measure(self) -> None:
        self._metrics.store_bytes.set(self._store.size)
        self._metrics.store_partitions.set(len(self._store))
