"""What several processes and servers share: bodies in memcached or Redis, by Django's cache.

Nothing here can make an answer wrong: names hold revisions, and what comes back is believed only as
`entry.opened` says. A cache server that fails, is slow or forgets makes it slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from django.core.cache import caches
from django.utils.crypto import salted_hmac

from api import metrics
from api.cache.entry import Entry, Name, opened, sealed
from tagmill.breaker import Breaker
from tagmill.caches import BODIES

log = structlog.get_logger("tagmill.cache")

# How long others wait for whoever builds a body before they build it themselves.
LEASE_SECONDS = 2
# Nobody asks for a superseded revision again; the server evicts what it has no room for.
KEEP_SECONDS = 3600
# Stands for a body that the server would not take: nobody is to wait for it.
LEFT_OUT = "left out"
TOO_LARGE = "too large"


def secret() -> bytes:
    """The key of the seals: the same on all servers, which sign with one key."""
    return salted_hmac("tagmill.cache", b"bodies", algorithm="sha256").digest()


class Shared:
    """For any thread. `item_bytes`: the largest item that the servers take."""

    def __init__(
        self,
        item_bytes: int,
        seal: bytes | None = None,
        open_cache: Callable[[], Any] | None = None,
    ) -> None:
        self._secret = secret() if seal is None else seal
        self._item_bytes = item_bytes
        self._open = open_cache or (lambda: caches[BODIES])
        self._breaker = Breaker("the cache of TAGMILL_BODY_CACHE_URL")

    def take(self, name: Name, is_good: Callable[[Entry], bool]) -> tuple[Entry | None, bool]:
        """What the servers have under the name, if it is good; without, whether the caller is the
        one to build it."""
        entry = self._look(name)
        if entry is None or not (entry.coding == LEFT_OUT or is_good(entry)):
            leased = self._call(lambda cache: cache.add(_lease(name), b"1", LEASE_SECONDS))
            # Who had the lease until now has stored the body before it let go.
            entry = self._look(name) if leased else None
            if entry is None or not (entry.coding == LEFT_OUT or is_good(entry)):
                metrics.CACHE_SERVERS.labels("miss").inc()
                return None, leased is not False
            self.release(name)
        if entry.coding == LEFT_OUT:
            return None, True
        metrics.CACHE_SERVERS.labels("hit").inc()
        return entry, False

    def _look(self, name: Name) -> Entry | None:
        found = self._call(lambda cache: cache.get(name.key))
        entry = opened(name, found, self._secret)
        if found is not None and entry is None:
            metrics.CACHE_SERVERS.labels("damaged").inc()
        return entry

    def put(self, name: Name, entry: Entry, asked: Name) -> None:
        """Store the body, and let go who waits for what was asked for: it may be of a newer
        revision, and what is stored may be evicted at once."""
        data = sealed(name, entry, self._secret)
        is_left_out = len(data) > self._item_bytes
        if not is_left_out:
            stored = self._call(lambda cache: self._set(cache, name, data))
            is_left_out = stored == TOO_LARGE
        if is_left_out:
            metrics.CACHE_SERVERS.labels("oversize").inc()
            mark = sealed(name, Entry(b"", LEFT_OUT, 0), self._secret)
            self._call(lambda cache: self._set(cache, name, mark))
        self.release(asked)

    def release(self, asked: Name) -> None:
        """Nobody builds it any more: whoever waits for it may."""
        self._call(lambda cache: cache.delete(_lease(asked)))

    def _set(self, cache: Any, name: Name, data: bytes) -> Any:
        try:
            cache.set(name.key, data, KEEP_SECONDS)
        except Exception as error:
            # memcached's own words, whatever the library makes of them.
            if "too large" in str(error):
                return TOO_LARGE
            raise
        metrics.CACHE_SERVERS.labels("stored").inc()
        return None

    def _call(self, call: Callable[[Any], Any]) -> Any:
        """None where the servers do not answer."""
        if not self._breaker.may_call():
            return None
        try:
            found = call(self._open())
        except Exception as error:
            # Each library has exceptions of its own, and none of them is worth an answer.
            metrics.CACHE_SERVERS.labels("error").inc()
            self._breaker.failed(error)
            return None
        self._breaker.succeeded()
        return found


def _lease(name: Name) -> str:
    return f"{name.key}:lease"
