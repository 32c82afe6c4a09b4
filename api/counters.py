"""Counters of all server processes together: attempts to log in, previews a minute.

They are kept in Django's cache (`tagmill.caches`, `tagmill.shared_cache`). A counter begins with
the first call, and ends a minute later; its cache entry is one number, the end and the count, so
that an atomic increment is all that a call needs.
"""

from __future__ import annotations

import abc
import hashlib
import time
from collections.abc import Callable

from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from tagmill.config import load
from tagmill.errors import CacheUnavailable

# An entry is the end, in seconds since 1970, times this, and the count. It fits into 64 bits, as
# memcached and Redis want it.
END = 10**9
# Somebody else's counter ended between two looks at it: it cannot happen often in a minute.
ATTEMPTS = 8


def count(name: str, seconds: int, now: float) -> tuple[int, float]:
    """Count a call: the how-manieth it is since the counter began, and when the counter ends."""
    # An address may hold what no key may, and nobody needs to read it there.
    key = hashlib.sha256(name.encode()).hexdigest()
    try:
        for _ in range(ATTEMPTS):
            try:
                end, counted = divmod(cache.incr(key), END)
            except ValueError:
                end, counted = int(now) + seconds, 1
                if not cache.add(key, end * END + counted, seconds):
                    continue
            return counted, float(end)
    except Exception as error:
        # Each library of a cache has errors of its own; those of the database are known.
        if not load().cache_url:
            raise
        raise CacheUnavailable(
            "the cache of TAGMILL_CACHE_URL does not answer: try again, or tell the administrator"
        ) from error
    raise CacheUnavailable("the cache keeps no entry: tell the administrator")


class MinuteThrottle(BaseThrottle, abc.ABC):
    """Refuses the calls of one `who` above `limit` in a minute, whichever process takes them."""

    scope: str
    timer: Callable[[], float] = staticmethod(time.time)
    seconds = 60

    @abc.abstractmethod
    def limit(self) -> int: ...

    @abc.abstractmethod
    def who(self, request: Request) -> str: ...

    def allow_request(self, request: Request, view: APIView) -> bool:
        now = self.timer()
        counted, end = count(f"{self.scope} {self.who(request)}", self.seconds, now)
        self._left = max(end - now, 0.0)
        most = self.limit()
        left = max(0, most - counted)
        # The names and the form of the IETF's draft.
        limits = {
            "RateLimit-Policy": f'"{self.scope}";q={most};w={self.seconds}',
            "RateLimit": f'"{self.scope}";r={left};t={int(self._left) + 1}',
        }
        vars(request)["rate_limits"] = limits
        return counted <= most

    def wait(self) -> float:
        return self._left
