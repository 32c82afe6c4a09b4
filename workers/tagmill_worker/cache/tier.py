"""The warm tier: files of what the worker holds, believed only as far as they prove themselves.

It is a copy. A file that is missing or damaged costs a fetch; a disk that is full, read-only or
gone ends the tier, with a metric to be woken by, and never an evaluation.

Everything here runs on the reactor's thread, and asks the disk's thread for what touches files.
Writes keep their order there, reads overtake them: an entry is read once all its files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.python.failure import Failure

from tagmill_worker.cache import files, folders
from tagmill_worker.cache.disk import READ, Disk
from tagmill_worker.cache.entries import Entries, Entry
from tagmill_worker.cache.files import Damaged, Place, Stored
from tagmill_worker.cache.lock import Lock
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page

# What waits to be written is in memory meanwhile.
MAX_WAITING_BYTES = 64 * 2**20
# A disk that takes longer than this is no faster than the server.
ANSWER_SECONDS = 10.0

_Written = tuple[Stored, dict[str, int]]

log = structlog.get_logger("workers.cache")


class Tier:
    """`in_use` answers the partitions that leases are about. `incarnation`: what is there is of it;
    "" until it was opened."""

    def __init__(
        self,
        reactor: Any,
        directory: Path,
        entries: Entries,
        metrics: Metrics,
        *,
        in_use: Callable[[], Collection[int]],
        lock: Lock,
    ) -> None:
        self.directory = directory
        self._reactor = reactor
        self._entries = entries
        self._metrics = metrics
        self._in_use = in_use
        self._lock = lock
        self._disk = Disk(reactor)
        self.incarnation = ""
        self._waiting = 0
        self._reading: list[int] = []
        self.is_on = True
        metrics.cache_off.set(0)

    # -- what is there ---------------------------------------------------------------------------

    async def open(self, incarnation: str) -> None:
        """Take what is there of this incarnation, and nothing else. Raises nothing but
        CancelledError."""
        self.incarnation = ""
        self._entries.clear()
        if not self.is_on:
            return
        if not files.is_incarnation(incarnation):
            self.turn_off(f"not an incarnation: {incarnation!r}")
            return
        work = partial(folders.open_incarnation, self.directory, incarnation, self._damaged_there)
        try:
            found = await self._timed(self._disk.do(work))
            aside = await self._timed(self._disk.do(partial(folders.aside_bytes, self.directory)))
        except (OSError, TimeoutError) as error:
            self.turn_off(_said(error))
            return
        self.incarnation, self._entries.aside = incarnation, aside
        self._later(partial(folders.delete_others, self.directory, incarnation))
        for item in found:
            last = item.chain[-1].head
            size = sum(stored.size for stored in item.chain)
            entry = Entry(item.partition, last.rev, last.number, size, item.chain, item.images)
            self._entries.add(entry)
        log.info(
            "the cache is open",
            action="cache_opened",
            partitions=len(self._entries),
            bytes=self._entries.size,
        )
        self._evict()
        self._measure()

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
        if entry is None or entry.waiting or not self.is_on:
            return None
        rev, chain = entry.rev, list(entry.files)
        self._reading.append(partition)
        try:
            pages = await self._timed(self._disk.do(partial(_read, chain), READ))
        except _Unread as unread:
            self._unread(entry, unread)
            return None
        except TimeoutError as error:
            self.turn_off(_said(error))
            return None
        finally:
            self._reading.remove(partition)
        self._metrics.cache_reads.labels("hit").inc()
        return rev, pages

    def image(self, page: Page) -> Path | None:
        """Where the image of a page is, without the suffix; None where there is none. The name is
        the page's digest."""
        entry = self._entries.get(page.partition)
        if not self.is_on or entry is None or not entry.images:
            return None
        digest = files.digest(page.data)
        return self._stem(page.partition, digest) if digest in entry.images else None

    # -- what is kept ----------------------------------------------------------------------------

    def put(self, partition: int, rev: int, pages: Sequence[Page]) -> Deferred[bool]:
        """Keep a whole partition, in the place of what was there. Whether it is written."""
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
        return self._write(entry, None, pages, size)

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
        return self._disk.do(lambda: None)

    def wants_image(self, page: Page) -> Path | None:
        """Where to save the image of a page; None where there is one, or no room for it."""
        entry = self._entries.get(page.partition)
        if not self.is_on or entry is None or entry.waiting:
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
            self._forget_image(stem)
        self._measure()

    def image_not_saved(self, stem: Path, reason: str) -> None:
        if self._entry_of(stem) is not None:
            self.turn_off(reason)

    def image_opened(self, stem: Path, reason: str) -> None:
        """`reason`: why it was not, "" where it was. Its page is there: the image is made again."""
        self._metrics.cache_images.labels("damaged" if reason else "opened").inc()
        if not reason:
            return
        entry = self._entry_of(stem)
        if entry is not None:
            self._entries.remove_image(entry, stem.name)
        self._damaged(stem.with_suffix(files.IMAGE), reason)
        self._forget_image(stem)
        self._measure()

    def drop(self, partition: int) -> None:
        """It has gone, or is not what it should be."""
        if self._entries.remove(partition) is not None:
            self._delete(partition)
            self._measure()

    async def close(self) -> None:
        """What waits to be written is, if that does not take long. Then the lock is free."""
        try:
            await self._timed(self._disk.close())
        except (TimeoutError, CancelledError):
            log.warning("the cache did not end in time", action="cache_unfinished")
        self._lock.close()

    def turn_off(self, reason: str) -> None:
        """For good: an operator looks at it, and starts the worker again."""
        if not self.is_on:
            return
        self.is_on = False
        self._entries.clear()
        self._metrics.cache_off.set(1)
        self._measure()
        log.error(
            "the cache is turned off; evaluation goes on without it",
            action="cache_off",
            directory=str(self.directory),
            error=reason,
        )

    # -- on the way to the disk ------------------------------------------------------------------

    def _may_write(self, size: int) -> bool:
        return self.is_on and bool(self.incarnation) and self._waiting + size <= MAX_WAITING_BYTES

    def _write(
        self, entry: Entry, since: int | None, pages: Sequence[Page], size: int
    ) -> Deferred[bool]:
        self._waiting += size
        entry.waiting += 1
        self._entries.grow(entry, size)
        place = self._place(entry.partition)
        done = self._disk.do(partial(_write, place, entry.number, since, entry.rev, list(pages)))
        return done.addBoth(partial(self._written, entry, size))

    def _written(self, entry: Entry, size: int, result: _Written | Failure) -> bool:
        self._waiting -= size
        entry.waiting -= 1
        if isinstance(result, Failure):
            self.turn_off(_said(result.value))
            return False
        if self._entries.get(entry.partition) is not entry:
            # It was dropped meanwhile, and its files with it.
            return False
        stored, images = result
        self._entries.grow(entry, stored.size - size)
        entry.files.append(stored)
        for digest, taken in images.items():
            self._entries.add_image(entry, digest, taken)
        self._evict()
        self._measure()
        return True

    def _evict(self) -> None:
        for entry in self._entries.surplus(self._used()):
            self._metrics.cache_evicted.inc()
            self._delete(entry.partition)

    def _used(self) -> set[int]:
        return {*self._in_use(), *self._reading}

    def _delete(self, partition: int) -> None:
        self._later(partial(folders.delete_partition, self._place(partition)))

    def _forget_image(self, stem: Path) -> None:
        both = [stem.with_suffix(suffix) for suffix in (files.IMAGE, files.SLOTS)]
        self._later(partial(folders.delete, both))

    def _stem(self, partition: int, digest: str) -> Path:
        return self._place(partition).folder / digest

    def _place(self, partition: int) -> Place:
        return Place(self.directory, self.incarnation, partition)

    def _entry_of(self, stem: Path) -> Entry | None:
        """The entry that has the page of that image; it may have gone meanwhile."""
        if stem.parent.parent.name != self.incarnation:
            return None
        entry = self._entries.get(int(stem.parent.name))
        return entry if entry is not None and entry.has(stem.name) else None

    # -- what is not believed --------------------------------------------------------------------

    def _unread(self, entry: Entry, unread: _Unread) -> None:
        if self._entries.get(entry.partition) is entry:
            self._entries.remove(entry.partition)
        self._metrics.cache_reads.labels("damaged" if unread.path else "miss").inc()
        if unread.path is not None:
            self._damaged(unread.path, unread.reason)
        else:
            log.warning(
                "a file of the cache has gone",
                action="cache_missed",
                partition=entry.partition,
                error=unread.reason,
            )
        self._delete(entry.partition)
        self._measure()

    def _damaged(self, path: Path, reason: str) -> None:
        _log_damaged(path, reason)
        self._later(partial(folders.set_aside, self.directory, path))
        done = self._disk.do(partial(folders.aside_bytes, self.directory))
        done.addCallbacks(partial(setattr, self._entries, "aside"), lambda _: None)

    def _damaged_there(self, path: Path, reason: str) -> None:
        """Called on the disk's thread."""
        self._reactor.callFromThread(_log_damaged, path, reason)

    # -- small things ----------------------------------------------------------------------------

    def _later(self, work: Callable[[], None]) -> None:
        if self.is_on:
            self._disk.do(work).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self.turn_off(_said(failure.value))

    def _timed(self, done: Deferred[Any]) -> Deferred[Any]:
        return done.addTimeout(ANSWER_SECONDS, self._reactor)

    def _measure(self) -> None:
        pages = sum(entry.page_bytes for entry in self._entries)
        size = self._metrics.cache_bytes.labels
        size("pages").set(pages)
        size("images").set(self._entries.size - pages - self._entries.aside)
        size("aside").set(self._entries.aside)
        self._metrics.cache_partitions.set(len(self._entries))
        self._metrics.cache_age.set(self._entries.oldest())


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
            raise _Unread(None, _said(error)) from None
        except (Damaged, OSError) as error:
            raise _Unread(stored.path, _said(error)) from None
    return pages


def _write(place: Place, number: int, since: int | None, rev: int, pages: list[Page]) -> _Written:
    """And what it replaces is deleted; the images of pages that are there as before stay."""
    stored = files.write(place, number, since, rev, pages)
    return stored, folders.tidy(place) if since is None else {}


def _said(error: BaseException | None) -> str:
    return str(error) or type(error).__name__


def _log_damaged(path: Path, reason: str) -> None:
    log.error(
        "a file of the cache is not believed; it is set aside",
        action="cache_damaged",
        file=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        error=reason,
    )


def _fired(value: bool) -> Deferred[bool]:
    done: Deferred[bool] = Deferred()
    done.callback(value)
    return done
