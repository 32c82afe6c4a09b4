"""Who waits for news of which rebuild, preview or tag. On the reactor thread alone.

However many listen, the database is read once for all of them, and not too often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from tagmill.errors import DatabaseUnavailable

log = structlog.get_logger("tagmill.watch")

# Proxies close connections that are silent.
HEARTBEAT_SECONDS = 15.0

# What is watched: a rebuild or a preview, or a tag by its name.
Key = Any
# Whether it is over, and its progress as JSON.
Found = dict[Key, tuple[bool, bytes]]


class Listener(Protocol):
    def progress(self, data: bytes) -> None: ...
    def end(self, data: bytes) -> None: ...
    def heartbeat(self) -> None: ...
    def close(self) -> None: ...


class _Over:
    """Listens until it is over."""

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred()

    def progress(self, data: bytes) -> None:
        pass

    def heartbeat(self) -> None:
        pass

    def end(self, data: bytes) -> None:
        if not self.done.called:
            self.done.callback(data)

    def close(self) -> None:
        self.end(b"")


@dataclass(frozen=True)
class Pace:
    """In seconds. After each reading comes a pause, of `each` for everything that is watched, and
    of `longest` at most. `look_again`: a notification may have been lost."""

    each: float
    longest: float
    look_again: float

    def pause(self, watched: int) -> float:
        return min(self.each * watched, self.longest)


class Watch:
    """`read` answers for each of what is watched; what it leaves out is not known any more, and
    nobody hears of it."""

    def __init__(
        self, clock: Any, pace: Pace, read: Callable[[list[Any]], Deferred[Found]]
    ) -> None:
        self._clock = clock
        self._pace = pace
        self._read = read
        # With the timer that closes it.
        self._listeners: dict[Key, dict[Listener, Any]] = defaultdict(dict)
        self._is_reading = False
        self._is_due = False
        self._loops = {
            LoopingCall(self._heartbeat): HEARTBEAT_SECONDS,
            LoopingCall(self.changed): pace.look_again,
        }

    def start(self) -> None:
        for loop, seconds in self._loops.items():
            loop.clock = self._clock
            loop.start(seconds, now=False)

    def add(self, key: Key, listener: Listener, seconds: float) -> None:
        """It is closed after so many seconds; whoever added it removes it."""
        timer = self._clock.callLater(seconds, listener.close)
        self._listeners[key][listener] = timer
        # What happened between the listener's own reading and now has been announced already.
        self.changed()

    def remove(self, key: Key, listener: Listener) -> None:
        timer = self._listeners[key].pop(listener, None)
        if timer is not None and timer.active():
            timer.cancel()
        if not self._listeners[key]:
            del self._listeners[key]

    async def until_over(self, key: Key, seconds: float) -> bytes:
        """Its last progress; nothing when it is not over after so many seconds, or the server
        ends."""
        over = _Over()
        self.add(key, over, seconds)
        try:
            return await over.done
        finally:
            self.remove(key, over)

    def changed(self) -> None:
        """Something may have moved on."""
        if self._is_reading:
            self._is_due = True
        elif self._listeners:
            self._is_reading = True
            wanted = list(self._listeners)
            pause = self._pace.pause(len(wanted))
            self._read(wanted).addCallbacks(self._notify, self._unreadable).addBoth(
                lambda _: self._clock.callLater(pause, self._next)
            )

    def drain(self) -> None:
        for loop in self._loops:
            if loop.running:
                loop.stop()
        for listener in self._all():
            listener.close()

    def _next(self) -> None:
        self._is_reading = False
        if self._is_due:
            self._is_due = False
            self.changed()

    def _notify(self, found: Found) -> None:
        for key, (is_over, data) in found.items():
            for listener in list(self._listeners.get(key, ())):
                listener.end(data) if is_over else listener.progress(data)

    def _unreadable(self, failure: Failure) -> None:
        if not failure.check(DatabaseUnavailable):
            log.error("progress could not be read", exc_info=failure.value)

    def _heartbeat(self) -> None:
        for listener in self._all():
            listener.heartbeat()

    def _all(self) -> list[Listener]:
        return [listener for found in self._listeners.values() for listener in found]
