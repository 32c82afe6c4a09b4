"""GET /api/v1/events: one stream of server-sent events for all that a page shows. Nobody who
listens holds a thread."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Count
from django.utils import timezone

from api.encoding import dumps
from api.server import events, feed, users
from api.server.feed import Together, Waiting
from api.server.http import Request
from api.server.native import Native
from api.server.operations import BROWSERS, Answer, Content, Operation, Parameter
from api.server.stream import EVENT_STREAM, Stream, announced
from api.server.threads import Threads
from tagmill.config import load
from tagmill.flows import feed as changes
from tagmill.tags.models import Preview, Rebuild
from tagmill.work.models import Worker

PAGE = 200
# The most of each kind that are streamed: nobody looks at more.
MAX_LIVE = 200
EXAMPLE = """id: WyIw...
event: tag
data: {"tags":["gpu"],"added":1,"removed":0}

event: rebuild
data: {"rebuild":"0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11","state":"running","done":3,"total":4}

"""
OPERATION = Operation(
    name="events",
    method="get",
    path="/api/v1/events",
    tag="changes",
    schemes=BROWSERS,
    summary="Watch all that a page shows",
    description="One stream of server-sent events: `tag` when its nodes, its definition or anything"
    " else of it has changed (how many nodes were added and removed; `changes` names them), "
    "`rebuild` with its progress, `preview` with that of your own, and `worker` with whether it is "
    "alive and how many partitions it holds; the last two for operators. What is under way comes at"
    " once, then what changes. The ids are cursors as those of `changes`: an EventSource that comes"
    " back by `Last-Event-ID` misses nothing. It closes after 900 seconds: ask again.",
    parameters=(Parameter("Last-Event-ID", "Where to go on; without it: now.", place="header"),),
    answers={200: Answer("The events.", Content(EVENT_STREAM, {"type": "string"}, EXAMPLE))},
    errors=("invalid", "cursor_gone", "not_acceptable"),
)

# What is under way, by kind and name, as JSON.
Live = dict[tuple[str, str], bytes]


class SessionResource(Native):
    offers = (EVENT_STREAM,)

    def __init__(self, reactor: Any, threads: Threads, shared: Together, waiting: Waiting) -> None:
        super().__init__()
        self._reactor = reactor
        self._threads = threads
        self._shared = shared
        self._waiting = waiting

    async def answer(self, request: Request) -> None:
        header, session = users.shown_by(request)
        since = request.getHeader("last-event-id") or ""
        user, is_operator, cursor = await self._threads.call(admit, header, session, since)
        if announced(request):
            return
        stream = Stream(self._reactor, request, feed.MAX_STREAM_SECONDS)
        stream.note(cursor.encode())
        before: Live = {}
        while not (stream.is_over or self._waiting.is_draining):
            page = await feed.read(self._shared, cursor, PAGE)
            for each in page.changes:
                if found := shown(each):
                    stream.send(*found, page.after(each).encode())
            if page.cursor != cursor and not page.more:
                stream.note(page.cursor.encode())
            cursor = page.cursor
            now = await self._live(user, is_operator)
            for (kind, name), data in now.items():
                if before.get((kind, name)) != data:
                    stream.send(kind, data)
            for kind, name in before.keys() - now.keys():
                if kind != "rebuild":
                    # A rebuild that has ended is among the changes.
                    stream.send(kind, dumps({kind: name, "state": "gone"}))
            before = now
            await stream.has_room()
            if not page.more:
                await self._waiting.next()
        stream.finish()

    async def _live(self, user: int, is_operator: bool) -> Live:
        found: Live = dict(await self._shared.call("rebuilds", rebuilds))
        if is_operator:
            found |= await self._shared.call("workers", workers)
            found |= await self._shared.call(("previews", user), previews, user)
        return found


def admit(header: str, session: str, since: str) -> tuple[int, bool, changes.Cursor]:
    """In a thread. Raises Unauthorized, Forbidden, Invalid, CursorGone."""
    return (*users.reader(header, session), changes.decode(since))


def shown(change: changes.Change) -> tuple[str, bytes] | None:
    """The event of a change; None where nobody shows it."""
    body = change.body
    if change.kind == "membership":
        counts = {name: len(body[name]) for name in ("added", "removed")}
        return "tag", dumps({"tags": body["tags"], **counts})
    if change.kind == "tag":
        named = {"tags": [body["tag"]], "action": body["action"], "reset": body["reset"]}
        return "tag", dumps({**named, "actor": body["actor"]})
    if change.kind == "rebuild" and body["state"] != Rebuild.State.RUNNING:
        return "rebuild", dumps({"rebuild": body["uuid"], "state": body["state"]})
    return None


def rebuilds() -> Live:
    running = Rebuild.objects.filter(state=Rebuild.State.RUNNING).order_by("-id")
    uuids = list(running.values_list("uuid", flat=True)[:MAX_LIVE])
    found = events.read_rebuilds(uuids).items()
    return {("rebuild", str(uuid)): data for uuid, (_, data) in found}


def previews(user: int) -> Live:
    own = Preview.objects.filter(requested_by=user, expires_at__gt=timezone.now()).order_by("-id")
    uuids = list(own.values_list("uuid", flat=True)[:MAX_LIVE])
    found = events.read_previews(uuids).items()
    return {("preview", str(uuid)): data for uuid, (_, data) in found}


def workers() -> Live:
    since = timezone.now() - timedelta(seconds=load().lease_seconds)
    rows = Worker.objects.annotate(held=Count("leases")).order_by("-id")[:MAX_LIVE]
    return {
        ("worker", str(row.uuid)): dumps(
            {
                "worker": row.uuid,
                "name": row.name,
                "alive": row.last_heartbeat > since,
                "leases": row.held,
            }
        )
        for row in rows
    }
