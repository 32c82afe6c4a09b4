"""The images of pages in the warm tier: where they are, and where one may be saved.

An image is named by the digest of its page, and takes its page's place in nothing: one that is
missing or wrong is made again.
"""

from __future__ import annotations

from pathlib import Path

from tagmill_worker.cache import files
from tagmill_worker.cache.entries import Entry
from tagmill_worker.cache.upkeep import Upkeep
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page


class PageImages:
    """What the evaluator asks (evaluators/saving): a `SavedImages`."""

    def __init__(self, upkeep: Upkeep, metrics: Metrics) -> None:
        self._upkeep = upkeep
        self._entries = upkeep.entries
        self._metrics = metrics

    def image(self, page: Page) -> Path | None:
        """Where the image of a page is, without the suffix; None where there is none."""
        entry = self._entries.get(page.partition)
        if not self._upkeep.is_on or entry is None or not entry.images:
            return None
        digest = files.digest(page.data)
        return self._stem(page.partition, digest) if digest in entry.images else None

    def wanted(self, page: Page) -> Path | None:
        """Where to save the image of a page; None where there is one, or no room for it."""
        entry = self._entries.get(page.partition)
        if not self._upkeep.is_on or entry is None or entry.waiting:
            return None
        if not self._entries.has_room_for_image(page.size):
            return None
        digest = files.digest(page.data)
        if digest in entry.images or not entry.has(digest):
            return None
        return self._stem(page.partition, digest)

    def image_saved(self, stem: Path, size: int) -> None:
        entry = self._entry_of(stem)
        if entry is not None:
            self._entries.add_image(entry, stem.name, size)
            self._metrics.cache_images.labels("saved").inc()
        if entry is not None and self._entries.is_full:
            # Larger than expected.
            self._entries.remove_image(entry, stem.name)
            entry = None
        if entry is None:
            self._forget(stem)
        self._upkeep.measure()

    def image_not_saved(self, stem: Path, reason: str) -> None:
        if self._entry_of(stem) is not None:
            self._upkeep.turn_off(reason)

    def image_opened(self, stem: Path, reason: str) -> None:
        """`reason`: why it was not, "" where it was. Its page is there: the image is made again."""
        entry = self._entry_of(stem)
        if not reason:
            self._metrics.cache_images.labels("opened").inc()
            return
        if entry is None:
            # The page was replaced meanwhile, and its image deleted.
            self._forget(stem)
            return
        self._metrics.cache_images.labels("damaged").inc()
        self._entries.remove_image(entry, stem.name)
        self._upkeep.damaged(stem.with_suffix(files.IMAGE), reason)
        self._forget(stem)
        self._upkeep.measure()

    def _forget(self, stem: Path) -> None:
        self._upkeep.delete(stem.with_suffix(suffix) for suffix in (files.IMAGE, files.SLOTS))

    def _stem(self, partition: int, digest: str) -> Path:
        return self._upkeep.place(partition).folder / digest

    def _entry_of(self, stem: Path) -> Entry | None:
        """The entry that has the page of that image; it may have gone meanwhile."""
        if stem.parent.parent.name != self._upkeep.incarnation:
            return None
        entry = self._entries.get(int(stem.parent.name))
        return entry if entry is not None and entry.has(stem.name) else None
