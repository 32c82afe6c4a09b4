"""The images that the worker holds, in one incarnation of the database."""

from __future__ import annotations

import structlog

from tagmill_worker.job import Job
from tagmill_worker.metrics import Metrics
from tagmill_worker.store import Image, Store

log = structlog.get_logger("workers")


class Holdings:
    def __init__(self, store: Store, metrics: Metrics) -> None:
        self.incarnation = ""
        self._store = store
        self._metrics = metrics

    def partitions(self) -> list[int]:
        return self._store.partitions()

    def get(self, partition: int) -> Image | None:
        return self._store.get(partition)

    def drop(self, partition: int) -> None:
        self._store.drop(partition)

    def adopt(self, incarnation: str) -> bool:
        """Whatever was stored in another incarnation of the database is dropped: its revs name
        other documents, its ids other expressions. The jobs ended with the registration before.
        Whether it is another."""
        if incarnation == self.incarnation:
            return False
        if self.incarnation:
            log.warning(
                "the database has another history; what was held is dropped",
                action="incarnation_changed",
                partitions=len(self._store),
            )
        self.incarnation = incarnation
        self._store.clear()
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
        elif job.held is not None and self._store.get(partition) is job.held:
            is_kept = True
            if job.pages:
                self._store.apply(partition, job.pages)
        job.is_passing = not is_kept
        self._measure()

    def _measure(self) -> None:
        self._metrics.store_bytes.set(self._store.size)
        self._metrics.store_partitions.set(len(self._store))
