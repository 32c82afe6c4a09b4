"""Which partitions the cache has, what they take, and which of them go first. No files here.

A rebuild asks for every partition once, in a circle. Whoever evicts the oldest to admit the newest
then evicts each partition just before it is asked for again. So a newcomer is admitted above
`full_ratio` only where something idle makes room for it; what was asked for again stays, and what
must go are the newest of those that never were.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from tagmill_worker.cache.files import Stored
from tagmill_worker.cache.folders import Found
from tagmill_worker.store import IDLE_SECONDS, MAX_DELTA_PAGES, MIN_DELTA_BYTES

# What an image takes for each byte of its page, until it is known: 2.4 kB for 0.4.
IMAGE_FACTOR = 6.0
# What has changed since an image was shared is shared again once it is such a part of it.
SHARE_AGAIN = 8
# Below `full_ratio` by this, once it is passed: not one partition after the other.
STEP = 0.02


@dataclass(eq=False, slots=True)
class Entry:
    """`number`: of the last file that was asked for; `rev`: what the partition is at with it.
    `waiting`: files that are not written yet: until they are, the entry is not read.
    `images`: bytes by the digest of the page. `page_bytes`: of all files of pages.
    `shared`: the number of the last file that others have, 0 for none; `refused`: of the last that
    the server does not want."""

    partition: int
    rev: int
    number: int
    page_bytes: int
    files: list[Stored] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    shared: int = 0
    refused: int = 0
    is_flushing: bool = False
    dirty_since: float | None = None
    added: float = 0.0
    used: float = 0.0
    hits: int = 0

    @classmethod
    def of(cls, found: Found) -> Entry:
        """What was there when the tier was opened."""
        last = found.chain[-1].head
        size = sum(stored.size for stored in found.chain)
        made = cls(found.partition, last.rev, last.number, size, found.chain, found.images)
        made.shared = found.shared
        return made

    @property
    def size(self) -> int:
        return self.page_bytes + sum(self.images.values())

    @property
    def is_dirty(self) -> bool:
        """Whether others lack it, or so much of it that `since` would bring them a lot."""
        if not self.files:
            return False
        if not self.shared:
            return True
        lacking = sum(item.size for item in self.files if item.head.number > self.shared)
        return lacking > self.files[0].size // SHARE_AGAIN

    @property
    def is_complete(self) -> bool:
        """Whether each of its pages has an image."""
        return all(page[2] in self.images for item in self.files for page in item.head.pages)

    def is_patchy(self, size: int) -> bool:
        """Whether it would be more delta than base, or too many files, with so much more."""
        if not self.files:
            return False
        base = self.files[0].size
        is_large = self.page_bytes + size - base > max(base // 2, MIN_DELTA_BYTES)
        return is_large or len(self.files) > MAX_DELTA_PAGES

    def has(self, digest: str) -> bool:
        """Whether it is one of its pages."""
        return any(digest == page[2] for item in self.files for page in item.head.pages)


class Entries:
    """`most_bytes` in all, `aside` included: bytes of files that were set aside."""

    def __init__(self, most_bytes: int, full_ratio: float, now: Callable[[], float]) -> None:
        self.aside = 0
        self._most = most_bytes
        self._full = round(most_bytes * full_ratio)
        self._target = round(most_bytes * (full_ratio - STEP))
        self._now = now
        self._entries: dict[int, Entry] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def size(self) -> int:
        return self._bytes + self.aside

    @property
    def is_full(self) -> bool:
        """Whether what can be done without is not done."""
        return self.size > self._full

    def has_room_for_image(self, page_size: int) -> bool:
        """By what the others take. An image is not worth a partition."""
        known = [entry for entry in self if entry.images]
        pages = sum(entry.page_bytes for entry in known)
        images = sum(sum(entry.images.values()) for entry in known)
        factor = max(images / pages, 1.0) if pages else IMAGE_FACTOR
        return self.size + page_size * factor <= self._full

    def get(self, partition: int) -> Entry | None:
        return self._entries.get(partition)

    def touch(self, partition: int) -> None:
        """It was leased."""
        entry = self._entries.get(partition)
        if entry is not None:
            entry.used = self._now()
            entry.hits += 1

    def has_room(self, size: int, used: Container[int]) -> bool:
        """Whether a newcomer may be admitted: below `full_ratio`, or where idle entries make room
        for it, which `surplus` then names."""
        idle = sum(entry.size for entry in self._idle(used))
        return self.size + size <= self._most and self.size - idle + size <= self._full

    def fits(self, size: int) -> bool:
        """Whether what is there may grow by so much."""
        return self.size + size <= self._most

    def add(self, entry: Entry) -> None:
        """In the place of what was there."""
        self.remove(entry.partition)
        entry.added = entry.used = self._now()
        self._entries[entry.partition] = entry
        self._bytes += entry.size
        self.note_dirty(entry)

    def grow(self, entry: Entry, size: int) -> None:
        entry.page_bytes += size
        self._bytes += size

    def add_image(self, entry: Entry, digest: str, size: int) -> None:
        self._bytes += size - entry.images.get(digest, 0)
        entry.images[digest] = size

    def remove_image(self, entry: Entry, digest: str) -> None:
        self._bytes -= entry.images.pop(digest, 0)

    def note_dirty(self, entry: Entry) -> None:
        """It was written, or shared."""
        if not entry.is_dirty:
            entry.dirty_since = None
        elif entry.dirty_since is None:
            entry.dirty_since = self._now()

    def states(self) -> dict[str, int]:
        """Bytes by state."""
        found = {"clean": 0, "dirty": 0, "flushing": 0}
        for entry in self:
            name = "dirty" if entry.dirty_since is not None else "clean"
            found["flushing" if entry.is_flushing else name] += entry.size
        return found

    def oldest_dirty(self) -> float:
        """How long the one that waits longest is dirty, in seconds."""
        now = self._now()
        return max((now - (entry.dirty_since or now) for entry in self.dirty()), default=0.0)

    def dirty(self) -> list[Entry]:
        return [entry for entry in self if entry.dirty_since is not None]

    def remove(self, partition: int) -> Entry | None:
        entry = self._entries.pop(partition, None)
        if entry is not None:
            self._bytes -= entry.size
        return entry

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def surplus(self, used: Container[int]) -> list[Entry]:
        """What goes now that `full_ratio` is passed, none of those that leases use. Removes it."""
        gone: list[Entry] = []
        if self.size <= self._full:
            return gone
        for entry in self._order(used):
            if self.size <= self._target:
                break
            self.remove(entry.partition)
            gone.append(entry)
        return gone

    def oldest(self) -> float:
        """The age of the oldest entry, in seconds."""
        return max((self._now() - entry.added for entry in self), default=0.0)

    def _idle(self, used: Container[int]) -> list[Entry]:
        before = self._now() - IDLE_SECONDS
        return [e for e in self if e.used < before and e.partition not in used]

    def _order(self, used: Container[int]) -> list[Entry]:
        """Clean ones before dirty ones. Of each, first what is idle, longest first; then what was
        asked for least, newest first. None that is on its way to others."""
        idle = sorted(self._idle(used), key=lambda entry: entry.used)
        known = {entry.partition for entry in idle}
        rest = [e for e in self if e.partition not in known and e.partition not in used]
        # Later entries of the dict were admitted later.
        rest.reverse()
        order = idle + sorted(rest, key=lambda entry: entry.hits)
        return sorted(
            (entry for entry in order if not entry.is_flushing),
            key=lambda entry: entry.dirty_since is not None,
        )
