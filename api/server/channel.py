"""A connection's deadlines: for headers, for a body, and for a client that does not read.

| while                                | the client has                                            |
|--------------------------------------|-----------------------------------------------------------|
| nothing was sent                     | IDLE_SECONDS, then the connection is closed               |
| headers arrive                       | HEADER_SECONDS from their first byte to their end         |
| a body arrives                       | STALL_SECONDS of slack, earned back at MIN_RATE           |
| an answer waits for the client       | STALL_SECONDS, and what it has to read at MIN_READ_RATE   |

All that waits for clients together is bounded, too (api/server/unread.py).

A byte now and then buys no time. Time that the server itself takes (a body held back, a request
that is computed or parked) does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.web import http

IDLE_SECONDS = 60.0
HEADER_SECONDS = 20.0
STALL_SECONDS = 30.0
# Bytes a second. A worker's results of 200 kB take 12 s at this rate.
MIN_RATE = 16 * 1024
# Answers are kept in memory until they are read: an answer of 4 MiB for a minute and a half.
MIN_READ_RATE = 64 * 1024
# What a transport keeps for its client before it says that its buffer is full.
MAX_UNSEEN_BYTES = 64 * 1024


class Pace:
    """Calls `late` once the other side has moved less than `rate` for STALL_SECONDS."""

    def __init__(
        self, clock: Callable[[], float], later: Any, late: Callable[[], None], rate: int
    ) -> None:
        self._clock = clock
        self._later = later
        self._late = late
        self._rate = rate
        self._call: Any = None

    @property
    def is_running(self) -> bool:
        return self._call is not None and bool(self._call.active())

    def start(self, size: int = 0) -> None:
        """The slack in full, and the time for `size` bytes."""
        self.stop()
        self._call = self._later(STALL_SECONDS + size / self._rate, self._late)

    def earn(self, size: int) -> None:
        """Add the time for `size` bytes that arrived, up to the slack."""
        if self.is_running:
            left = self._call.getTime() - self._clock()
            self._call.reset(min(STALL_SECONDS, left + size / self._rate))

    def extend(self, size: int) -> None:
        """Add the time for `size` more bytes that have to be moved."""
        if self.is_running:
            self._call.delay(size / self._rate)

    def stop(self) -> None:
        if self.is_running:
            self._call.cancel()
        self._call = None


class Channel(http.HTTPChannel):
    """Twisted's, with deadlines. `site` counts it and has the clock."""

    site: Any
    client_host: str
    transport: Any
    timeOut: Any
    callLater: Any

    def connectionMade(self) -> None:
        self._heading: Any = None
        self._unread = 0
        """Bytes that the client has yet to read, at most."""
        self._is_held = False
        self._is_aborted = False
        clock = self.site.reactor.seconds
        self._body = Pace(clock, self.callLater, self._expire, MIN_RATE)
        self._reading = Pace(clock, self.callLater, self._expire, MIN_READ_RATE)
        super().connectionMade()

    # -- what the client sends -------------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        if self._heading is None and not self._handlingRequest and self._transferDecoder is None:
            self._heading = self.callLater(HEADER_SECONDS, self._expire)
        super().dataReceived(data)

    def allHeadersReceived(self) -> None:
        self._stop_heading()
        if self.length != 0:
            self._body.start()
        super().allHeadersReceived()

    def rawDataReceived(self, data: bytes) -> None:
        if not self._handlingRequest:
            self._body.earn(len(data))
        super().rawDataReceived(data)

    def allContentReceived(self) -> None:
        self._body.stop()
        self._is_held = False
        super().allContentReceived()

    def hold(self) -> None:
        """Read no more of the body for now. The client is made to wait, so no time counts."""
        if not self._is_held:
            self._is_held = True
            self._savedTimeOut = self.setTimeout(None)
            self._body.stop()
        self.transport.pauseProducing()

    def release(self) -> None:
        """Read on."""
        if self._is_held:
            self._is_held = False
            self.setTimeout(self._savedTimeOut)
            self._body.start()
        self.transport.resumeProducing()

    # -- what the client reads -------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._wrote(len(data))
        super().write(data)

    def writeSequence(self, iovec: Sequence[bytes]) -> None:
        self._wrote(sum(map(len, iovec)))
        super().writeSequence(iovec)

    def _wrote(self, size: int) -> None:
        if self._reading.is_running:
            self._reading.extend(size)
        else:
            # A transport with more than that would have said so.
            self._unread = min(self._unread, MAX_UNSEEN_BYTES)
        self._unread += size
        self._report()

    def _report(self) -> None:
        """Tell the site what waits for this client, as long as it is behind."""
        if not self._is_aborted:
            self.site.unread.set(self, self._unread if self._reading.is_running else 0)

    def pauseProducing(self) -> None:
        """The transport's buffer is full: the client is slower than the answer."""
        if not self._reading.is_running:
            self._reading.start(self._unread)
        self._report()
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """The client has read everything."""
        self._unread = 0
        self._reading.stop()
        self._report()
        super().resumeProducing()
        if self._is_held:
            self.transport.pauseProducing()

    def loseConnection(self) -> None:
        """Closes when the client has read everything, and in any case after a while."""
        if not self._reading.is_running:
            self._reading.start(self._unread)
        self._report()
        super().loseConnection()

    # -- the end ---------------------------------------------------------------------------------

    def _expire(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Drop the connection, and what waits for its client."""
        self._is_aborted = True
        self.transport.abortConnection()

    def _stop_heading(self) -> None:
        if self._heading is not None and self._heading.active():
            self._heading.cancel()
        self._heading = None

    def connectionLost(self, reason: Any = None) -> None:
        self._stop_heading()
        self._body.stop()
        self._reading.stop()
        # Whoever releases it now starts no timer any more.
        self._is_held = False
        self._is_aborted = True
        self.site.disconnected(self)
        super().connectionLost(reason)
