"""GET /api/v1/rebuilds/{uuid}/events and /api/v1/previews/{uuid}/events: progress as
server-sent events.

One `progress` event at once and after each change, as often as the kind's pace allows, then one
`end` event, and the stream closes; without an `end` after MAX_STREAM_SECONDS, and then a client
asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from api.encoding import dumps
from api.server import users
from api.server.http import Request
from api.server.native import Native
from api.server.operations import BROWSERS, Answer, Content, Operation
from api.server.stream import EVENT_STREAM, announced
from api.server.threads import Threads
from api.server.watch import Found, Pace, Watch
from tagmill.errors import NotFound
from tagmill.tags import previews, rebuilds
from tagmill.tags.models import Rebuild

# Whoever listens longer asks again, as an EventSource does by itself: a client that went without a
# word, or whose token has ended, listens no longer than this.
MAX_STREAM_SECONDS = 900.0
RUNNING = "running"
# What listeners to a preview get when it was cancelled, or another took its place.
GONE = (True, b'{"state":"gone"}')


@dataclass(frozen=True)
class Kind:
    """What is watched. `check` raises when the Authorization header and the session's key are
    not of somebody who may; `read` is called in a thread. `example`: the progress as JSON."""

    name: str
    pace: Pace
    check: Callable[[str, str], None]
    read: Callable[[list[UUID]], Found]
    example: str

    @property
    def operation(self) -> Operation:
        found = f"event: progress\ndata: {self.example}\n\n"
        return Operation(
            name=f"{self.name}s_events",
            method="get",
            path=f"/api/v1/{self.name}s/{{uuid}}/events",
            tag=f"{self.name}s",
            schemes=BROWSERS,
            summary=f"Watch a {self.name}",
            description=f"The progress of the {self.name}, as server-sent events: one `progress` "
            "at once and after each change, then one `end` of the same form, and the stream "
            f"closes. It closes without an `end` after {MAX_STREAM_SECONDS:.0f} seconds: ask again."
            " A comment comes now and then, to keep proxies from closing it.",
            errors=("not_acceptable",),
            answers={200: Answer("The events.", Content(EVENT_STREAM, {"type": "string"}, found))},
        )


@implementer(IPushProducer)
class Stream:
    """One listener. While its client does not read, progress is skipped: the next says it all."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._is_paused = False
        self._last = b""
        self.closed: Deferred[None] = Deferred()
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


class EventsResource(Native):
    offers = (EVENT_STREAM,)

    def __init__(self, kind: Kind, watch: Watch, threads: Threads, uuid: bytes) -> None:
        super().__init__()
        self._kind = kind
        self._watch = watch
        self._threads = threads
        self._uuid = uuid.decode()

    async def answer(self, request: Request) -> None:
        header, session = users.shown_by(request)
        uuid, is_over, data = await self._threads.call(
            admit, self._kind, header, session, self._uuid
        )
        if announced(request):
            return
        stream = Stream(request)
        try:
            if is_over:
                stream.end(data)
            else:
                stream.progress(data)
                self._watch.add(uuid, stream, MAX_STREAM_SECONDS)
            await stream.closed
        finally:
            self._watch.remove(uuid, stream)
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


REBUILDS = Kind(
    "rebuild",
    Pace(0.2, 0.2, look_again=5.0),
    users.viewer,
    read_rebuilds,
    '{"rebuild": "0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11", "state": "running", "done": 3, "total": 4,'
    ' "nodes_done": 768, "nodes_total": 1024, "nodes_per_second": 512.0, "eta_seconds": 0.5}',
)
# Somebody waits for it, and it takes well under a second.
PREVIEWS = Kind(
    "preview",
    Pace(0.01, 0.2, look_again=1.0),
    users.operator,
    read_previews,
    '{"preview": "0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11", "state": "evaluating", "partitions": 4,'
    ' "pending": 1}',
)


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
