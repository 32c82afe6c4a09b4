"""What the worker holds of its partitions: the pages as they came, bounded in bytes.

A rebuild asks for every partition once, in a circle. An LRU that is one partition too small would
then evict each partition just before it is asked for again, and hit nothing. So nothing is evicted
to admit: what is held stays, newcomers pass through, and of a fleet a tenth too large nine tenths
still hit. Room is made only by partitions that went, and by those not leased for a long time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagmill_worker.pages import Page

# A partition not leased for this long belongs to another worker now.
IDLE_SECONDS = 3600.0
# Each delta is a page of its own, and a full evaluation unpacks them all: past this many, or past
# half the size of the first pages, fetching everything again is cheaper.
MAX_DELTA_PAGES = 256
MIN_DELTA_BYTES = 1 << 16
# What Python needs for a page beyond its bytes.
PAGE_OVERHEAD = 200


@dataclass(slots=True)
class Image:
    """A partition at `rev`: the newest page that names a slot is right about it.

    `pages` is oldest first. The image may hold newer documents than `rev` says, never older ones.
    `is_on_disk`: its pages are in the cache, and have to be read before they are evaluated.
    """

    rev: int
    pages: list[Page]
    base_bytes: int
    size: int
    delta_pages: int = 0
    used: float = 0.0
    is_on_disk: bool = False

    @classmethod
    def of(cls, pages: list[Page]) -> Image:
        """The image of the pages of a whole fetch, at least one; its rev is the first page's."""
        kept = [page for page in pages if not page.is_empty]
        size = size_of(kept)
        return cls(pages[0].rev, kept, size, size)


def size_of(pages: list[Page]) -> int:
    return sum(page.size + PAGE_OVERHEAD for page in pages)


class Store:
    """Images by partition id, `most_bytes` in all. `now` answers seconds; `dropped` is told of the
    pages that nobody will ask for again."""

    def __init__(
        self,
        most_bytes: int,
        now: Callable[[], float],
        dropped: Callable[[list[Page]], None] = lambda pages: None,
    ) -> None:
        self._most = most_bytes
        self._now = now
        self._dropped = dropped
        self._images: dict[int, Image] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._images)

    def __contains__(self, partition: int) -> bool:
        return partition in self._images

    def partitions(self) -> list[int]:
        """What is held, for `holds` of a lease request."""
        return list(self._images)

    def get(self, partition: int) -> Image | None:
        image = self._images.get(partition)
        if image is not None:
            image.used = self._now()
        return image

    def room(self) -> int:
        """Bytes that may still be admitted, once the idle images are gone."""
        self._drop_idle()
        return self._most - self.size

    def admit(self, partition: int, pages: list[Page]) -> bool:
        """Keep the pages of a whole fetch if there is room. Replaces what was held."""
        return self.take(partition, Image.of(pages))

    def take(self, partition: int, image: Image) -> bool:
        """Keep an image if there is room. Replaces what was held."""
        self.drop(partition)
        if image.size > self.room():
            return False
        image.used = self._now()
        self._images[partition] = image
        self.size += image.size
        return True

    def apply(self, partition: int, pages: list[Page]) -> None:
        """Bring an image forward by the pages of a delta since its rev, at least one.

        An image that outgrows the store, or that is more delta than image, is dropped: the next
        lease fetches it afresh.
        """
        image = self._images[partition]
        kept = [page for page in pages if not page.is_empty]
        grown = size_of(kept)
        image.rev = max(image.rev, pages[0].rev)
        image.pages = image.pages + kept
        image.delta_pages += len(kept)
        image.size += grown
        self.size += grown
        is_patchy = image.size - image.base_bytes > max(image.base_bytes // 2, MIN_DELTA_BYTES)
        if self.size > self._most or image.delta_pages > MAX_DELTA_PAGES or is_patchy:
            self.drop(partition)

    def drop(self, partition: int) -> None:
        image = self._images.pop(partition, None)
        if image is not None:
            self.size -= image.size
            self._dropped(image.pages)

    def clear(self) -> None:
        for partition in self.partitions():
            self.drop(partition)

    def _drop_idle(self) -> None:
        oldest = self._now() - IDLE_SECONDS
        for partition in [key for key, image in self._images.items() if image.used < oldest]:
            self.drop(partition)
