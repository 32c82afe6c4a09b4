"""How much all clients together have yet to read: one bound, and who is let go beyond it."""

from __future__ import annotations

from typing import Protocol

import structlog

from api import metrics

log = structlog.get_logger("tagmill.access")


class Reader(Protocol):
    """A connection whose client is slower than its answer."""

    client_host: str

    def abort(self) -> None: ...


class Unread:
    """Bytes that wait in memory for clients that read slowly, or not at all.

    A connection counts from when its transport's buffer is full until its client has read
    everything. Beyond `most`, those that have been behind for longest are aborted; the last one
    never is, so that one large answer always arrives.
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        # In the order in which they fell behind.
        self._sizes: dict[Reader, int] = {}

    def set(self, reader: Reader, size: int) -> None:
        """`size` bytes at most wait for it; 0: it has caught up, or has left."""
        self.total += size - self._sizes.get(reader, 0)
        if not size:
            self._sizes.pop(reader, None)
            return
        self._sizes[reader] = size
        while self.total > self._most and len(self._sizes) > 1:
            slowest = next(iter(self._sizes))
            waiting = self._sizes.pop(slowest)
            self.total -= waiting
            metrics.ABORTED_READERS.inc()
            log.warning(
                "a client that does not read is let go: more than TAGMILL_UNREAD_BYTES wait",
                client=slowest.client_host,
                bytes=waiting,
            )
            slowest.abort()
