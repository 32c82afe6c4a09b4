"""Write-back: what was built here is shared with other workers, sooner the more of it there is.

Dirty is what others lack. A partition is written to the disk first and used from there; its upload
takes nobody's time but a connection's. Below `dirty_ratio` of the tier it waits, so that one that
changes meanwhile is sent once; from there on one is sent at a time, from `dirty_high_ratio` four.
The oldest waits no longer than `flush_seconds`: half of it, then one is sent, and after all of it
four at a time.

Nothing depends on any of it. What is killed, refused or evicted before it was shared is read as
documents by whoever needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import LoopingCall

from tagmill_wire import images
from tagmill_worker.backoff import Backoff
from tagmill_worker.cache import bundle, files, folders
from tagmill_worker.cache.entries import Entry
from tagmill_worker.cache.files import Damaged, Place, Stored
from tagmill_worker.cache.shared import Shared
from tagmill_worker.cache.upkeep import Upkeep
from tagmill_worker.errors import ImagesOff, NotFound, Refused, ServerError, WorkerGone
from tagmill_worker.metrics import Metrics

TICK_SECONDS = 1.0
FEW, MANY = 1, 4
# Images of pages are saved after the first evaluation; a partition is not shared without them
# before it has waited so long.
IMAGES_SECONDS = 10.0
# In memory at once; one that is larger goes alone.
MAX_SENDING_BYTES = 128 * 2**20
# After a failure, doubled each time.
FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
# Whoever makes this file beside the lock asks for everything dirty; it goes when that is done.
ASKED = "tagmill-cache.flush"
FULL = "image_store_full"

log = structlog.get_logger("workers.cache")


@dataclass(frozen=True)
class Watermarks:
    """Where flushing begins, and where it hurries; the ratios are parts of `most_bytes`."""

    most_bytes: int
    dirty_ratio: float
    dirty_high_ratio: float
    flush_seconds: float

    def uploads(self, dirty_bytes: int, oldest: float) -> int:
        """How many at a time, where so much is dirty and the oldest has waited for so long."""
        if dirty_bytes >= self.dirty_high_ratio * self.most_bytes or oldest >= self.flush_seconds:
            return MANY
        if dirty_bytes >= self.dirty_ratio * self.most_bytes or oldest >= self.flush_seconds / 2:
            return FEW
        return 0


class Flusher:
    """`has_images`: whether those of pages are worth waiting for."""

    def __init__(
        self,
        reactor: Any,
        upkeep: Upkeep,
        shared: Shared,
        metrics: Metrics,
        watermarks: Watermarks,
        *,
        has_images: bool,
    ) -> None:
        self._reactor = reactor
        self._upkeep = upkeep
        self._entries = upkeep.entries
        self._shared = shared
        self._metrics = metrics
        self._watermarks = watermarks
        self._has_images = has_images
        self._running: dict[Deferred[None], int] = {}
        self._backoff = Backoff(FIRST_PAUSE, MAX_PAUSE)
        self._paused_until = 0.0
        self._is_asked = False
        self._is_looking = False
        self._ticking = LoopingCall(self.tick)
        self._ticking.clock = reactor

    def start(self) -> None:
        self._ticking.start(TICK_SECONDS, now=False).addErrback(
            lambda failure: log.error("flushing ended", exc_info=failure.value)
        )

    def stop(self) -> None:
        """What is on its way is given up."""
        if self._ticking.running:
            self._ticking.stop()
        for running in list(self._running):
            running.cancel()

    def tick(self) -> None:
        if not self._upkeep.is_on or not self._upkeep.incarnation:
            return
        self._look_asked()
        if not self._shared.is_on or self._reactor.seconds() < self._paused_until:
            return
        most = self._most()
        while len(self._running) < most:
            entry = self._next()
            if entry is None:
                break
            self._begin(entry)
        self._metrics.cache_dirty_age.set(self._entries.oldest_dirty())

    def is_done(self) -> bool:
        """Whether nothing is left that can be shared, nor about to be: what is being written to the
        disk is shared once it is there."""
        is_writing = any(entry.waiting for entry in self._entries)
        return not self._running and not is_writing and self._next(hurry=True) is None

    def ask(self) -> None:
        """Everything dirty, from now on until that is done."""
        self._is_asked = True
        self.tick()

    # -- which ------------------------------------------------------------------------------------

    def _most(self) -> int:
        if self._is_asked:
            return MANY
        states = self._entries.states()
        dirty = states["dirty"] + states["flushing"]
        return self._watermarks.uploads(dirty, self._entries.oldest_dirty())

    def _next(self, hurry: bool = False) -> Entry | None:
        """The one that has waited for longest."""
        sending = sum(self._running.values())
        able = [
            entry
            for entry in self._entries.dirty()
            if not entry.is_flushing
            and not entry.waiting
            and entry.refused != entry.number
            and (hurry or self._is_asked or self._has_what_it_needs(entry))
        ]
        oldest = min(able, key=lambda entry: entry.dirty_since or 0.0, default=None)
        if oldest is None or (sending and sending + oldest.size > MAX_SENDING_BYTES):
            return None
        return oldest

    def _has_what_it_needs(self, entry: Entry) -> bool:
        waited = self._reactor.seconds() - (entry.dirty_since or 0.0)
        patience = min(IMAGES_SECONDS, self._watermarks.flush_seconds)
        return not self._has_images or entry.is_complete or waited >= patience

    def _look_asked(self) -> None:
        """Whether somebody asks for all; and the answer, once that is done."""
        if self._is_looking:
            return
        asked = self._upkeep.directory / ASKED
        work = asked.exists
        if self._is_asked and self.is_done():
            self._is_asked = False
            work = partial(_answer, asked)
        self._is_looking = True
        self._upkeep.do(work).addCallbacks(self._looked, lambda _: self._looked(False))

    def _looked(self, is_asked: bool) -> None:
        self._is_looking = False
        self._is_asked = self._is_asked or is_asked

    # -- one --------------------------------------------------------------------------------------

    def _begin(self, entry: Entry) -> None:
        entry.is_flushing = True
        self._upkeep.measure()
        running = Deferred.fromCoroutine(self._flush(entry))
        self._running[running] = entry.size
        running.addErrback(lambda why: log.error("flushing failed", exc_info=why.value))
        running.addBoth(partial(self._ended, running, entry))

    def _ended(self, running: Deferred[None], entry: Entry, _: Any) -> None:
        entry.is_flushing = False
        self._running.pop(running, None)
        self._entries.note_dirty(entry)
        self._upkeep.measure()
        if self._ticking.running or self._is_asked:
            self._reactor.callLater(0, self.tick)

    async def _flush(self, entry: Entry) -> None:
        """Raises nothing but what is a fault."""
        number, rev, chain = entry.number, entry.rev, list(entry.files)
        place = self._upkeep.place(entry.partition)
        try:
            work = partial(_built, place, rev, chain, frozenset(entry.images))
            body = await self._upkeep.do(work)
            name = images.name(place.incarnation, rev, self._shared.schema, files.digest(body))
            await self._shared.store(entry.partition, name, body)
        except CancelledError:
            return
        except (Damaged, FileNotFoundError) as error:
            # Whoever reads it next finds that, too.
            self._refused(entry, number, error)
        except OSError as error:
            self._upkeep.turn_off(str(error))
        except Refused as error:
            if error.code == FULL:
                self._failed(error, MAX_PAUSE)
            else:
                self._refused(entry, number, error)
        except ImagesOff as error:
            self._shared.turned_off(error)
        except (NotFound, WorkerGone) as error:
            self._refused(entry, number, error)
        except (ServerError, TimeoutError) as error:
            self._failed(error, getattr(error, "retry_after", None))
        else:
            self._backoff.reset()
            entry.shared = number
            self._metrics.cache_flushes.labels("stored").inc()
            if self._entries.get(entry.partition) is entry:
                self._upkeep.later(partial(_mark, chain[-1]))

    def _failed(self, error: Exception, seconds: float | None) -> None:
        pause = self._backoff.next(seconds)
        self._paused_until = self._reactor.seconds() + pause
        self._metrics.cache_flushes.labels("failed").inc()
        log.warning(
            "an image was not shared; it is tried again",
            action="flush_failed",
            error=str(error) or type(error).__name__,
            delay=round(pause, 3),
        )

    def _refused(self, entry: Entry, number: int, error: Exception) -> None:
        """It is not tried again before it has changed."""
        entry.refused = number
        self._metrics.cache_flushes.labels("refused").inc()
        log.warning(
            "an image is not shared",
            action="flush_refused",
            partition=entry.partition,
            error=str(error),
        )


def _built(place: Place, rev: int, chain: Sequence[Stored], saved: frozenset[str]) -> bytes:
    """On the disk's thread. Raises Damaged and OSError."""
    found = []
    for stored in chain:
        for page in files.read(stored):
            digest = files.digest(page.data)
            found.append((page, _image(place.folder / digest) if digest in saved else b""))
    if len(found) > bundle.MAX_PAGES:
        raise Damaged(f"{len(found)} pages, most of them changes")
    return b"".join(bundle.pack(place.incarnation, place.partition, rev, found))


def _image(stem: Path) -> bytes:
    """Packed; nothing where it has gone meanwhile."""
    try:
        slots = stem.with_suffix(files.SLOTS).read_bytes()
        return bundle.pack_image(slots, stem.with_suffix(files.IMAGE).read_bytes())
    except FileNotFoundError:
        return b""


def _mark(stored: Stored) -> None:
    """Unless it has gone meanwhile."""
    if stored.path.exists():
        folders.mark_shared(stored)


def _answer(asked: Path) -> bool:
    asked.unlink(missing_ok=True)
    return False
