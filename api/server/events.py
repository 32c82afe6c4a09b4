"""GET /api/v1/rebuilds/{uuid}/events and /api/v1/tags/preview/{uuid}/events: progress as
server-sent events.

One `progress` event at once and after each change, at most five a second, then one `end` event, and
the stream closes; without an `end` after MAX_STREAM_SECONDS, and then a client asks again. However
many listen, the database is read once for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure
from zope.interface import implementer

from api.encoding import dumps
from api.server import users
from api.server.http import Request
from api.server.native import Native
from api.server.threads import Threads
from tagmill.errors import DatabaseUnavailable, NotFound
from tagmill.tags import previews, rebuilds
from tagmill.tags.models import Rebuild

log = structlog.get_logger("tagmill.events")

THROTTLE_SECONDS = 0.2
# Proxies close connections that are silent; and a notification may have been lost.
HEARTBEAT_SECONDS = 15.0
LOOK_AGAIN_SECONDS = 5.0
# Whoever listens longer asks again, as an EventSource does by itself: a client that went without a
# word, or whose token has ended, listens no longer than this.
MAX_STREAM_SECONDS = 900.0
RUNNING = "running"
# What a listener to a preview is told when it was cancelled, or another took its place.
GONE = (True, b'{"state":"gone"}')

Found = dict[UUID, tuple[bool, bytes]]


@dataclass(frozen=True)
class Kind:
    """What is listened to. `check` raises when the Authorization header and the session's key are
    not of somebody who may; `read` answers, in a thread, whether each is over, and its progress as
    JSON."""

    name: str
    check: Callable[[str, str], None]
    read: Callable[[list[UUID]], Found]


@implementer(IPushProducer)
class Stream:
    """One listener. While its client does not read, progress is skipped: the next says it all."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._is_paused = False
        self._last = b""
        self.closed: Deferred[None] = Deferred()
        request.setHeader("Content-Type", "text/event-stream")
        request.setHeader("Cache-Control", "no-store")
        request.setHeader("X-Accel-Buffering", "no")
        request.registerProducer(self, True)

    def progress(self, data: bytes) -> None:
        if data != self._last and not self._is_paused:
            self._last = data
            self._request.write(b"event: progress\ndata: " + data + b"\n\n")

    def end(self, data: bytes) -> None:
        self._request.write(b"event: end\ndata: " + data + b"\n\n")
        self.close()

    def heartbeat(self) -> None:
        if not self._is_paused:
            self._request.write(b": alive\n\n")

    def close(self) -> None:
        if not self.closed.called:
            self.closed.callback(None)

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False

    def stopProducing(self) -> None:
        self._is_paused = True


class Events:
    """The listeners of each rebuild, or each preview. On the reactor thread alone."""

    def __init__(self, clock: Any, threads: Threads, kind: Kind) -> None:
        self._clock = clock
        self._threads = threads
        self.kind = kind
        self._streams: dict[UUID, set[Stream]] = defaultdict(set)
        self._is_reading = False
        self._is_due = False
        self._loops = [LoopingCall(self._heartbeat), LoopingCall(self.changed)]
        for loop in self._loops:
            loop.clock = clock

    def start(self) -> None:
        for loop, seconds in zip(self._loops, (HEARTBEAT_SECONDS, LOOK_AGAIN_SECONDS), strict=True):
            loop.start(seconds, now=False)

    def add(self, uuid: UUID, stream: Stream) -> None:
        self._streams[uuid].add(stream)
        timer = self._clock.callLater(MAX_STREAM_SECONDS, stream.close)

        def end(result: Any) -> Any:
            if timer.active():
                timer.cancel()
            return result

        stream.closed.addBoth(end)

    def remove(self, uuid: UUID, stream: Stream) -> None:
        self._streams[uuid].discard(stream)
        if not self._streams[uuid]:
            del self._streams[uuid]

    def changed(self) -> None:
        """Something may have moved on: read what is listened to, not too often."""
        if self._is_reading:
            self._is_due = True
        elif self._streams:
            self._is_reading = True
            self._threads.call(self.kind.read, list(self._streams)).addCallbacks(
                self._tell, self._unreadable
            ).addBoth(lambda _: self._clock.callLater(THROTTLE_SECONDS, self._next))

    def drain(self) -> None:
        for loop in self._loops:
            if loop.running:
                loop.stop()
        for stream in self._all():
            stream.close()

    def _next(self) -> None:
        self._is_reading = False
        if self._is_due:
            self._is_due = False
            self.changed()

    def _tell(self, found: Found) -> None:
        for uuid, (is_over, data) in found.items():
            for stream in list(self._streams.get(uuid, ())):
                stream.end(data) if is_over else stream.progress(data)

    def _unreadable(self, failure: Failure) -> None:
        if not failure.check(DatabaseUnavailable):
            log.error("progress could not be read", exc_info=failure.value)

    def _heartbeat(self) -> None:
        for stream in self._all():
            stream.heartbeat()

    def _all(self) -> list[Stream]:
        return [stream for streams in self._streams.values() for stream in streams]


class EventsResource(Native):
    def __init__(self, events: Events, threads: Threads, uuid: bytes) -> None:
        super().__init__()
        self._events = events
        self._threads = threads
        self._uuid = uuid.decode()

    async def answer(self, request: Request) -> None:
        header, session = users.shown_by(request)
        uuid, is_over, data = await self._threads.call(
            admit, self._events.kind, header, session, self._uuid
        )
        stream = Stream(request)
        self._events.add(uuid, stream)
        try:
            if is_over:
                stream.end(data)
            else:
                stream.progress(data)
                # What happened between the read and the add has been announced already.
                self._events.changed()
            await stream.closed
        finally:
            self._events.remove(uuid, stream)
            request.unregisterProducer()
        request.finish()


def admit(kind: Kind, header: str, session: str, text: str) -> tuple[UUID, bool, bytes]:
    """The progress, for who may see it, in a thread. Raises Unauthorized, Forbidden, NotFound."""
    kind.check(header, session)
    try:
        uuid = UUID(text)
    except ValueError:
        raise NotFound(f"no {kind.name} {text}") from None
    found = kind.read([uuid]).get(uuid)
    if found is None or found == GONE:
        raise NotFound(f"no {kind.name} {text}")
    return (uuid, *found)


def read_rebuilds(wanted: list[UUID]) -> Found:
    found = {}
    for rebuild in Rebuild.objects.filter(uuid__in=wanted):
        progress = rebuilds.progress(rebuild)
        data = dumps({"rebuild": rebuild.uuid, **_members(progress)})
        found[rebuild.uuid] = (progress.state != RUNNING, data)
    return found


def read_previews(wanted: list[UUID]) -> Found:
    found: Found = dict.fromkeys(wanted, GONE)
    for uuid, progress in previews.progress(wanted).items():
        members = {
            "preview": uuid,
            "state": progress.state,
            "partitions": progress.partitions,
            "pending": progress.pending,
        }
        found[uuid] = (progress.is_over, dumps(members))
    return found


REBUILDS = Kind("rebuild", users.viewer, read_rebuilds)
PREVIEWS = Kind("preview", users.operator, read_previews)


def _members(progress: Any) -> dict[str, Any]:
    names = (
        "state",
        "done",
        "total",
        "nodes_done",
        "nodes_total",
        "nodes_per_second",
        "eta_seconds",
    )
    return {name: getattr(progress, name) for name in names}
