"""Work that is under way, done once for all who ask meanwhile. On the reactor thread alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")
Begin = Callable[[], Deferred[T]]


@dataclass(slots=True)
class _Flight(Generic[T]):
    begin: Begin[T]
    waiting: list[Deferred[T]] = field(default_factory=list)
    after: _Flight[T] | None = None

    def join(self) -> Deferred[T]:
        """Whoever leaves takes nothing from the others: the work goes on."""
        joined: Deferred[T] = Deferred(self.waiting.remove)
        self.waiting.append(joined)
        return joined

    def land(self, result: T | Failure) -> None:
        waiting, self.waiting = self.waiting, []
        for joined in waiting:
            if isinstance(result, Failure):
                joined.errback(result)
            else:
                joined.callback(result)


class Flights(Generic[T]):
    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    def is_under_way(self, key: Hashable) -> bool:
        return key in self._flights

    def join(self, key: Hashable, begin: Begin[T]) -> Deferred[T]:
        """The result of the work that is under way, or else of `begin`."""
        flight = self._flights.get(key)
        if flight is not None:
            return flight.join()
        flight = self._flights[key] = _Flight(begin)
        joined = flight.join()
        self._depart(key, flight)
        return joined

    def join_next(self, key: Hashable, begin: Begin[T]) -> tuple[Deferred[T], bool]:
        """The result of work that begins after this call, and whether somebody else asked for it
        first: who finds work under way waits for its end, and shares what begins then."""
        flight = self._flights.get(key)
        if flight is None:
            return self.join(key, begin), False
        is_shared = flight.after is not None
        if flight.after is None:
            flight.after = _Flight(begin)
        return flight.after.join(), is_shared

    def _depart(self, key: Hashable, flight: _Flight[T]) -> None:
        flight.begin().addBoth(self._landed, key, flight)

    def _landed(self, result: T | Failure, key: Hashable, flight: _Flight[T]) -> None:
        following = flight.after
        if following is None or not following.waiting:
            del self._flights[key]
        else:
            self._flights[key] = following
            self._depart(key, following)
        flight.land(result)
