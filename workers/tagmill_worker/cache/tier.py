"""The warm tier: files of what the worker holds, believed only as far as they prove themselves.

It is a copy. Everything here runs on the reactor's thread, and asks the disk's thread for what
touches files. Writes keep their order there, reads overtake them: an entry is read once all its
files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import structlog
from twisted.internet.defer import Deferred, TimeoutError
from twisted.python.failure import Failure

from tagmill_worker.cache import files, folders
from tagmill_worker.cache.disk import READ
from tagmill_worker.cache.entries import Entry
from tagmill_worker.cache.files import Damaged, Place, Stored
from tagmill_worker.cache.page_images import PageImages
from tagmill_worker.cache.upkeep import Upkeep, said
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page

# What waits to be written is in memory meanwhile.
MAX_WAITING_BYTES = 64 * 2**20

_Written = tuple[Stored, dict[str, int]]

log = structlog.get_logger("workers.cache")


class Tier:
    """`in_use` answers the partitions that leases are about."""

    def __init__(
        self, upkeep: Upkeep, metrics: Metrics, in_use: Callable[[], Collection[int]]
    ) -> None:
        self.upkeep = upkeep
        self.images = PageImages(upkeep, metrics)
        self._entries = upkeep.entries
        self._metrics = metrics
        self._in_use = in_use
        self._waiting = 0
        self._reading: list[int] = []

    @property
    def incarnation(self) -> str:
        return self.upkeep.incarnation

    # -- what is there ---------------------------------------------------------------------------

    async def open(self, incarnation: str, *, alone: bool = True) -> None:
        """Take what is there of this incarnation, and nothing else: the others go, where it is
        `alone`. Raises nothing but CancelledError."""
        upkeep = self.upkeep
        upkeep.incarnation = ""
        self._entries.clear()
        if not upkeep.is_on:
            return
        if not files.is_incarnation(incarnation):
            upkeep.turn_off(f"not an incarnation: {incarnation!r}")
            return
        directory = upkeep.directory
        work = partial(folders.open_incarnation, directory, incarnation, upkeep.damaged_there)
        try:
            found = await upkeep.timed(work)
            aside = await upkeep.timed(partial(folders.aside_bytes, directory))
        except (OSError, TimeoutError) as error:
            upkeep.turn_off(said(error))
            return
        upkeep.incarnation, self._entries.aside = incarnation, aside
        if alone:
            upkeep.later(partial(folders.delete_others, directory, incarnation))
        for item in found:
            self._entries.add(Entry.of(item))
        log.info(
            "the cache is open",
            action="cache_opened",
            partitions=len(self._entries),
            bytes=self._entries.size,
        )
        self._evict()
        upkeep.measure()

    def partitions(self) -> list[int]:
        """What can be read."""
        return [entry.partition for entry in self._entries if not entry.waiting]

    def has(self, partition: int) -> bool:
        return self._entries.get(partition) is not None

    def rev(self, partition: int) -> int | None:
        """What the partition is at here; None where it cannot be read."""
        entry = self._entries.get(partition)
        return None if entry is None or entry.waiting else entry.rev

    def touch(self, partition: int) -> None:
        self._entries.touch(partition)

    async def read(self, partition: int) -> tuple[int, list[Page]] | None:
        """The rev and the pages, oldest first, each found right; None where that is not so. Raises
        nothing but CancelledError."""
        entry = self._entries.get(partition)
        if entry is None or entry.waiting or not self.upkeep.is_on:
            return None
        rev, chain = entry.rev, list(entry.files)
        self._reading.append(partition)
        try:
            pages = await self.upkeep.timed(partial(_read, chain), READ)
        except _Unread as unread:
            self._unread(entry, unread)
            return None
        except TimeoutError as error:
            self.upkeep.turn_off(said(error))
            return None
        finally:
            self._reading.remove(partition)
        self._metrics.cache_reads.labels("hit").inc()
        return rev, pages

    # -- what is kept ----------------------------------------------------------------------------

    def put(
        self, partition: int, rev: int, pages: Sequence[Page], *, is_shared: bool = False
    ) -> Deferred[bool]:
        """Keep a whole partition, in the place of what was there. Whether it is written.
        `is_shared`: others have it already."""
        size = files.size_of(pages)
        old = self._entries.get(partition)
        room = self._entries.has_room(size - (old.size if old else 0), self._used())
        if not self._may_write(size) or not room:
            # What is there is older, and true.
            self._metrics.cache_passed.inc()
            return _fired(False)
        number = old.number + 1 if old is not None else 1
        entry = Entry(partition, rev, number, 0)
        self._entries.add(entry)
        return self._write(entry, None, pages, size, is_shared=is_shared)

    def extend(self, partition: int, since: int, rev: int, pages: Sequence[Page]) -> Deferred[bool]:
        """Bring what is there forward by a delta; where that cannot be, it stays what it is."""
        entry = self._entries.get(partition)
        size = files.size_of(pages)
        if entry is None or since > entry.rev or rev < entry.rev or not self._may_write(size):
            return _fired(False)
        if not self._entries.fits(size):
            self._metrics.cache_passed.inc()
            return _fired(False)
        if entry.is_patchy(size):
            # Cheaper anew as a whole, when that is fetched or held.
            self.drop(partition)
            return _fired(False)
        entry.number, entry.rev = entry.number + 1, rev
        return self._write(entry, since, pages, size)

    def settled(self) -> Deferred[None]:
        """Fires when what was to be deleted is: nothing newer is taken for it."""
        return self.upkeep.do(lambda: None)

    def drop(self, partition: int) -> None:
        """It has gone, or is not what it should be."""
        if self._entries.remove(partition) is not None:
            self.upkeep.delete_partition(partition)
            self.upkeep.measure()

    # -- on the way to the disk ------------------------------------------------------------------

    def _may_write(self, size: int) -> bool:
        upkeep = self.upkeep
        is_open = upkeep.is_on and bool(upkeep.incarnation)
        return is_open and self._waiting + size <= MAX_WAITING_BYTES

    def _write(
        self,
        entry: Entry,
        since: int | None,
        pages: Sequence[Page],
        size: int,
        *,
        is_shared: bool = False,
    ) -> Deferred[bool]:
        self._waiting += size
        entry.waiting += 1
        self._entries.grow(entry, size)
        place = self.upkeep.place(entry.partition)
        store = partial(files.write, place, entry.number, since, entry.rev, list(pages))
        work = partial(_write, place, store, is_whole=since is None, is_shared=is_shared)
        return self.upkeep.do(work).addBoth(partial(self._written, entry, size, is_shared))

    def _written(
        self, entry: Entry, size: int, is_shared: bool, result: _Written | Failure
    ) -> bool:
        self._waiting -= size
        entry.waiting -= 1
        if isinstance(result, Failure):
            self.upkeep.turn_off(said(result.value))
            return False
        if self._entries.get(entry.partition) is not entry:
            # It was dropped meanwhile, and its files with it.
            return False
        stored, images = result
        self._entries.grow(entry, stored.size - size)
        entry.files.append(stored)
        for digest, taken in images.items():
            self._entries.add_image(entry, digest, taken)
        if is_shared:
            entry.shared = stored.head.number
        self._entries.note_dirty(entry)
        self._evict()
        self.upkeep.measure()
        return True

    def _evict(self) -> None:
        for entry in self._entries.surplus(self._used()):
            self._metrics.cache_evicted.inc()
            self.upkeep.delete_partition(entry.partition)

    def _used(self) -> set[int]:
        return {*self._in_use(), *self._reading}

    def _unread(self, entry: Entry, unread: _Unread) -> None:
        if self._entries.get(entry.partition) is entry:
            self._entries.remove(entry.partition)
        self._metrics.cache_reads.labels("damaged" if unread.path else "miss").inc()
        if unread.path is not None:
            self.upkeep.damaged(unread.path, unread.reason)
        else:
            log.warning(
                "a file of the cache has gone",
                action="cache_missed",
                partition=entry.partition,
                error=unread.reason,
            )
        self.upkeep.delete_partition(entry.partition)
        self.upkeep.measure()


class _Unread(Exception):
    """`path` is what is not believed; None where something is not there."""

    def __init__(self, path: Path | None, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def _read(chain: Sequence[Stored]) -> list[Page]:
    pages: list[Page] = []
    for stored in chain:
        try:
            pages += files.read(stored)
        except FileNotFoundError as error:
            raise _Unread(None, said(error)) from None
        except (Damaged, OSError) as error:
            raise _Unread(stored.path, said(error)) from None
    return pages


def _write(
    place: Place, store: Callable[[], Stored], *, is_whole: bool, is_shared: bool
) -> _Written:
    """And what it replaces is deleted; the images of pages that are there as before stay."""
    stored = store()
    images = folders.tidy(place) if is_whole else {}
    if is_shared:
        folders.mark_shared(stored)
    return stored, images


def _fired(value: bool) -> Deferred[bool]:
    done: Deferred[bool] = Deferred()
    done.callback(value)
    return done
