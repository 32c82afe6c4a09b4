"""Long answers to one client, bounded in what the client has not read; and streams of server-sent
events, which are bounded in time, too."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import LoopingCall
from zope.interface import implementer

from api.server.http import Request

EVENT_STREAM = "text/event-stream"
# Proxies close connections that are silent.
HEARTBEAT_SECONDS = 15.0


def announced(request: Request) -> bool:
    """Set the headers of a stream of events. Whether HEAD asked for them alone, which is answered
    then."""
    request.setHeader("Content-Type", EVENT_STREAM)
    request.setHeader("Cache-Control", "no-store")
    request.setHeader("X-Accel-Buffering", "no")
    if request.method != b"HEAD":
        return False
    request.finish()
    return True


@implementer(IPushProducer)
class Paced:
    """Written piece by piece, each when there is room for it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._room: list[Deferred[None]] = []
        self._is_paused = False
        self._has_gone = False
        request.registerProducer(self, True)
        request.notifyFinish().addBoth(lambda _: self._gone())

    async def has_room(self) -> None:
        """Until the client has read what was sent."""
        if self._is_paused and not self._has_gone:
            one: Deferred[None] = Deferred()
            self._room.append(one)
            await one

    def finish(self) -> None:
        if not self._has_gone:
            self._request.unregisterProducer()
            self._request.finish()
        self._gone()

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False
        self._wake()

    def stopProducing(self) -> None:
        self._gone()

    def _gone(self) -> None:
        self._has_gone = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._room = self._room, []
        for one in waiting:
            if not one.called:
                one.callback(None)


class Stream(Paced):
    def __init__(self, reactor: Any, request: Request, seconds: float) -> None:
        self._reactor = reactor
        self._ends = reactor.seconds() + seconds
        self._beating = LoopingCall(self._beat)
        self._beating.clock = reactor
        super().__init__(request)
        # The client is told that it is there, before anything happens.
        request.write(b": hello\n\n")
        self._beating.start(HEARTBEAT_SECONDS, now=False)

    @property
    def is_over(self) -> bool:
        return self._has_gone or self._reactor.seconds() >= self._ends

    def send(self, event: str, data: bytes, identity: str = "") -> None:
        if not self._has_gone:
            named = f"id: {identity}\n" if identity else ""
            self._request.write(f"{named}event: {event}\ndata: ".encode() + data + b"\n\n")

    def note(self, identity: str) -> None:
        """Where to go on, without an event."""
        if not self._has_gone:
            self._request.write(f"id: {identity}\n\n".encode())

    def _beat(self) -> None:
        if not self._is_paused:
            self._request.write(b": alive\n\n")

    def _gone(self) -> None:
        if self._beating.running:
            self._beating.stop()
        super()._gone()
