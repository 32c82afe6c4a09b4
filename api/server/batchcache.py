"""Batch bodies, serialised and compressed, bounded in bytes; each computed once for all who ask.

A key names its partition's rev, so an entry is never out of date: it is only no longer asked for.
Used from the reactor thread alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from api import metrics

T = TypeVar("T", bound=Sized)

# What an entry costs beyond its body: the key, the bytes object, the dictionary's slot.
OVERHEAD = 512


class BatchCache(Generic[T]):
    """Least recently used goes first. `most` is in bytes, as `len` gives them of a body; 0 keeps
    nothing (and still shares)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bodies: OrderedDict[Hashable, T] = OrderedDict()
        self._computing: dict[Hashable, list[Deferred[T]]] = {}
        self.size = 0

    def get(self, key: Hashable, compute: Callable[[], Deferred[T]]) -> Deferred[T]:
        """The body under `key`, computed when nobody has it yet. An error goes to all who wait for
        the computation, and is not kept."""
        result: Deferred[T] = Deferred(lambda waiting: self._forget(key, waiting))
        if key in self._bodies:
            metrics.BATCH_CACHE.labels("hit").inc()
            self._bodies.move_to_end(key)
            result.callback(self._bodies[key])
        elif key in self._computing:
            metrics.BATCH_CACHE.labels("hit").inc()
            self._computing[key].append(result)
        else:
            metrics.BATCH_CACHE.labels("miss").inc()
            self._computing[key] = [result]
            compute().addCallbacks(
                self._computed, self._failed, callbackArgs=(key,), errbackArgs=(key,)
            )
        return result

    def _computed(self, body: T, key: Hashable) -> None:
        self._keep(key, body)
        for waiting in self._computing.pop(key):
            waiting.callback(body)

    def _failed(self, failure: Failure, key: Hashable) -> None:
        for waiting in self._computing.pop(key):
            waiting.errback(failure)

    def _keep(self, key: Hashable, body: T) -> None:
        if len(body) + OVERHEAD > self._most:
            return
        self._bodies[key] = body
        self.size += len(body) + OVERHEAD
        while self.size > self._most:
            _, dropped = self._bodies.popitem(last=False)
            self.size -= len(dropped) + OVERHEAD

    def _forget(self, key: Hashable, waiting: Deferred[T]) -> None:
        """A client left. The computation goes on: it is nearly done, and others may ask."""
        if key in self._computing:
            self._computing[key].remove(waiting)
