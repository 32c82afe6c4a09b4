"""The body cache: what many ask for is built once, packed once, kept, and sent as it is.

Three steps: what this process keeps (`store`), what cache servers keep (`shared`), and a build. Who
asks while the same body is on its way shares it; with cache servers so do other processes, by a
short lease. Used from the reactor thread alone; builds and cache servers are called in threads.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from api.cache.counts import Counts
from api.cache.entry import IDENTITY, ZSTD, Entry, Name
from api.cache.flights import Flights
from api.cache.keyspaces import KEYSPACES
from api.cache.shared import LEASE_SECONDS, Shared
from api.cache.store import Store

log = structlog.get_logger("tagmill.cache")

# How soon somebody who waits for another process's build looks for it again.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.1
# Statuses that were built together do not all end together: the last part of a lifetime is drawn.
JITTER_PART = 0.25
# A status that was born later than the question is newer; by more than this, a clock was set back.
MAX_AHEAD_SECONDS = 1.0


class Built(NamedTuple):
    """A body that who asks for it has built already, and what that took."""

    entry: Entry
    seconds: float


Build = Callable[[], Entry] | Built


@dataclass(frozen=True, slots=True)
class Asked:
    """`coding`: how the client takes the body, ZSTD, GZIP or IDENTITY. `now`: by the database's
    clock, and `max_age`: how old a status may be; 0: not at all. `is_off`: somebody switched the
    cache off for it."""

    name: Name
    coding: str = ZSTD
    now: float = 0.0
    max_age: float = 0.0
    is_off: bool = False

    @property
    def is_status(self) -> bool:
        return KEYSPACES[self.name.keyspace].is_status

    def takes(self, entry: Entry, lifetime: float = float("inf")) -> bool:
        """Whether the entry is young enough, where it is a status."""
        if not self.is_status:
            return True
        age = self.now - entry.born
        return self.max_age > 0 and -MAX_AHEAD_SECONDS <= age <= min(self.max_age, lifetime)


class Bodies:
    """`lifetime`: the longest, in seconds, that a status is kept."""

    def __init__(
        self, clock: Any, most: int, lifetime: float = 5.0, shared: Shared | None = None
    ) -> None:
        self._clock = clock
        self._most = most
        self._lifetime = lifetime
        self._shared = shared
        self._flights: Flights[Entry] = Flights()
        self.counts = Counts()
        self.store = Store(most, self.counts.evicted)

    def may_have(self, name: Name) -> bool:
        """Whether somebody else may have built it, or does so: a guess, in any thread."""
        return self._shared is not None or self._flights.is_under_way(name) or self.store.has(name)

    async def get(self, asked: Asked, build: Build, threads: Any) -> Entry:
        """The body, packed as the client takes it; one that is large may be packed by zstd all the
        same. An error of a build goes to all who wait for it, and is not kept. What `build` returns
        names its `revision` where it may be another than was asked for."""
        entry = await self._kept_or_built(asked, build, threads)
        if entry.coding in (asked.coding, IDENTITY) or entry.is_large:
            return entry
        revision = entry.revision or asked.name.revision
        name = asked.name._replace(revision=revision, coding=asked.coding)
        recoded = None if asked.is_off else self.store.get(name)
        if recoded is None or recoded.born != entry.born:
            recoded = await self._flights.join(
                (name, entry.born), lambda: threads.call(entry.recoded, asked.coding)
            )
            if not asked.is_off:
                self.store.put(name, recoded)
        return recoded

    async def _kept_or_built(self, asked: Asked, build: Build, threads: Any) -> Entry:
        name = asked.name
        if asked.is_off:
            return await self._built(asked, build, threads)
        self.counts.lookup(name.keyspace)
        entry = self.store.get(name)
        if entry is not None and asked.takes(entry, self._lifetime_of(entry)):
            self.counts.hit(name.keyspace)
            return entry
        if asked.is_status and asked.max_age <= 0:
            return await self._built_from_now_on(asked, build, threads)
        if self._flights.is_under_way(name):
            self.counts.coalesced(name.keyspace)
        entry = await self._flights.join(
            name, lambda: Deferred.fromCoroutine(self._fetched(asked, build, threads))
        )
        if asked.is_status and asked.now - entry.born > asked.max_age:
            # Somebody else was content with an older one.
            waiting, _ = self._next(asked, build, threads)
            entry = await waiting
        return entry

    async def _built_from_now_on(self, asked: Asked, build: Build, threads: Any) -> Entry:
        """A status for who takes none that is older than the question."""
        waiting, is_shared = self._next(asked, build, threads)
        count = self.counts.coalesced if is_shared else self.counts.miss
        count(asked.name.keyspace)
        return await waiting

    def _next(self, asked: Asked, build: Build, threads: Any) -> tuple[Deferred[Entry], bool]:
        return self._flights.join_next(
            asked.name, lambda: Deferred.fromCoroutine(self._built(asked, build, threads))
        )

    async def _fetched(self, asked: Asked, build: Build, threads: Any) -> Entry:
        keyspace = asked.name.keyspace
        if self._shared is not None:
            entry = await self._from_servers(self._shared, asked, threads)
            if entry is not None:
                self.counts.hit(keyspace)
                self._keep(asked.name, entry)
                return entry
        self.counts.miss(keyspace)
        try:
            return await self._built(asked, build, threads)
        except Exception:
            if self._shared is not None:
                threads.call(self._shared.release, asked.name).addErrback(_not_shared)
            raise

    async def _from_servers(self, shared: Shared, asked: Asked, threads: Any) -> Entry | None:
        """What the cache servers have; None where this process is to build it."""
        end = self._clock.seconds() + LEASE_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while True:
            found, is_leader = await threads.call(shared.take, asked.name, self._is_good(asked))
            if found is not None or is_leader or self._clock.seconds() >= end:
                entry: Entry | None = found
                return entry
            await deferLater(self._clock, pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _is_good(self, asked: Asked) -> Callable[[Entry], bool]:
        return lambda entry: asked.takes(entry, self._lifetime_of(entry))

    async def _built(self, asked: Asked, build: Build, threads: Any) -> Entry:
        entry, seconds = build if isinstance(build, Built) else await threads.call(built, build)
        self.counts.built(asked.name.keyspace, seconds)
        if not asked.is_off:
            name = asked.name._replace(revision=entry.revision or asked.name.revision)
            self._keep(name, entry)
            if self._shared is not None and (asked.max_age > 0 or not asked.is_status):
                putting = threads.call(self._shared.put, name, entry, asked.name)
                putting.addErrback(_not_shared)
        made: Entry = entry
        return made

    def _keep(self, name: Name, entry: Entry) -> None:
        if self._most and not self.store.put(name, entry):
            self.counts.oversize(name.keyspace)

    def _lifetime_of(self, entry: Entry) -> float:
        drawn = zlib.crc32(repr(entry.born).encode()) / 2**32
        return self._lifetime * (1 - JITTER_PART * drawn)


def built(build: Callable[[], Entry]) -> Built:
    """In a thread."""
    began = time.monotonic()
    return Built(build(), time.monotonic() - began)


def _not_shared(failure: Failure) -> None:
    log.error("a body could not be given to the cache servers", exc_info=failure.value)
