"""A cache for Django over several memcached servers, of which the nearest is asked first.

Reads: this host's own server, then the others in the order of the key, then nobody has it; what
another had is given to the own one. Writes: the own one, and one more, so that what one host built
another finds. Nothing is ever invalidated: it is for values that are right under their keys for
ever (`api.cache`), so that members may come, go, freeze and come back with what they had.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from pymemcache.exceptions import MemcacheServerError, MemcacheUnexpectedCloseError

from tagmill.cache_members import Member, Members

T = TypeVar("T")

# The most others that are asked: what somebody wrote is at one of the first two of them that
# answer, unless members have just come or gone.
MAX_ASKED = 3
# The local one, and one more.
COPIES = 2
MAX_SECONDS = 2_592_000

_lock = threading.Lock()
_shared: dict[tuple[str, float], Members] = {}


class LocalFirstCache(BaseCache):
    """Values are bytes. Django makes one of these for each thread; they share the members."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = params.get("OPTIONS") or {}
        given = options.get("members")
        self._members = given or _members(location, float(options.get("seconds", 0.25)))

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        name = self.make_and_validate_key(key, version)
        local = self._members.local()
        for member in _answering([local] if local else [], 1):
            found = _call(member, lambda member: member.client.get(name))
            if found is not None:
                return found
        for member in _answering(self._members.others(name), MAX_ASKED):
            found = _call(member, lambda member: member.client.get(name))
            if found is not None:
                for near in _answering([local] if local else [], 1):
                    _store(near, name, found, self._seconds(DEFAULT_TIMEOUT))
                return found
        return default

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> None:
        """Raises MemcacheServerError where the value is too large for the first that is asked."""
        name = self.make_and_validate_key(key, version)
        seconds = self._seconds(timeout)
        local = self._members.local()
        wanted = [*([] if local is None else [local]), *self._members.others(name)]
        stored = 0
        for member in _answering(wanted, len(wanted)):
            stored += _store(member, name, value, seconds)
            if stored == COPIES:
                break

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> bool:
        """At the member that all hosts agree on. True where none answers: whoever asks goes on."""
        name = self.make_and_validate_key(key, version)
        seconds = self._seconds(timeout)
        for member in _answering(self._members.ordered(name), 1):
            added = _call(member, lambda member: member.client.add(name, value, seconds))
            return added is not False
        return True

    def delete(self, key: Any, version: int | None = None) -> bool:
        """What `add` made."""
        name = self.make_and_validate_key(key, version)
        for member in _answering(self._members.ordered(name), 1):
            return bool(_call(member, lambda member: member.client.delete(name)))
        return False

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return False

    def clear(self) -> None:
        """Nothing needs to be cleared; what nobody asks for is evicted."""

    def _seconds(self, timeout: Any) -> int:
        wanted = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return 0 if wanted is None else min(MAX_SECONDS, max(1, int(wanted)))


def _members(text: str, seconds: float) -> Members:
    with _lock:
        if (text, seconds) not in _shared:
            _shared[text, seconds] = Members(text, seconds)
        return _shared[text, seconds]


def _answering(members: Iterable[Member], most: int) -> Iterator[Member]:
    """The first of those that are not left out."""
    left = most
    for member in members:
        if left and member.breaker.may_call():
            left -= 1
            yield member


def _store(member: Member, name: str, value: bytes, seconds: int) -> bool:
    """Whether it took it. Raises MemcacheServerError where it is too large for it."""
    return bool(_call(member, lambda member: member.client.set(name, value, seconds)))


def _call(member: Member, call: Callable[[Member], T]) -> T | None:
    """None where the member does not answer, or has no room. Raises MemcacheServerError where the
    value is too large for it."""
    try:
        try:
            found = call(member)
        except (ConnectionError, MemcacheUnexpectedCloseError):
            # It was started again since: all connections that are kept are to the one before.
            member.client.close()
            found = call(member)
    except MemcacheServerError as error:
        member.breaker.succeeded()
        if "too large" in str(error):
            raise
        return None
    except Exception as error:
        # A socket's errors, and whatever is said by a server that is no memcached.
        member.breaker.failed(error)
        return None
    member.breaker.succeeded()
    return found
