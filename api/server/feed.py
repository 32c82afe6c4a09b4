"""GET /api/v1/changes: what has changed since a cursor, as lines or as server-sent events; and who
waits for more. Nobody who waits holds a thread.

Those who have read everything stand at the same cursor: the database is read once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.task import LoopingCall, deferLater

from api.encoding import dumps
from api.server import users
from api.server.http import Request
from api.server.lease import wait
from api.server.native import Native, respond_packed
from api.server.operations import APPLIED, BROWSERS, PREFER, Answer, Content, Operation, Parameter
from api.server.stream import EVENT_STREAM, Stream, announced
from api.server.threads import Threads
from tagmill.errors import Invalid
from tagmill.flows import feed

NDJSON = "application/x-ndjson"
MOST, DEFAULT = 1000, 500
# After each reading comes a pause; and changes that nobody announces are looked for so often.
PAUSE_SECONDS = 0.2
LOOK_SECONDS = 1.0
# Whoever listens longer asks again, as an EventSource does by itself.
MAX_STREAM_SECONDS = 900.0
EXAMPLE = (
    '{"kind":"membership","at":"2026-01-01T12:00:00Z","actor":"","tags":["gpu"],"cluster":"north",'
    '"added":["4y3h7n"],"removed":[]}\n{"cursor":"WyIw...","more":false}\n'
)
OPERATION = Operation(
    name="changes",
    method="get",
    path="/api/v1/changes",
    tag="changes",
    schemes=BROWSERS,
    summary="Watch what changes",
    description="What has changed since a cursor, a line each: memberships of tags with the nodes "
    "added and removed, tags and their definitions, nodes, and rebuilds. It is complete, and what "
    "follows from something comes after it. The last line has the `cursor` to go on from, and "
    "whether there is `more` already; `Prefer: wait=N` waits for the first change. With `Accept: "
    "text/event-stream` the changes come as server-sent events as they happen, each with its "
    "cursor as its id, until the stream closes after 900 seconds: an EventSource goes on by itself."
    " Where `reset` is true, the nodes of the tag are others at once: read them again.",
    parameters=(
        Parameter("since", "A cursor; `0`: all that is kept, and every node. Without it: now."),
        Parameter(
            "limit",
            "Changes in an answer.",
            {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT},
        ),
        Parameter("Last-Event-ID", "As `since`, which it goes before.", place="header"),
        PREFER,
    ),
    answers={
        200: Answer(
            "The changes, and the cursor to go on from.",
            Content(NDJSON, {"type": "string", "format": "binary"}, EXAMPLE, (EVENT_STREAM,)),
            APPLIED,
        )
    },
    errors=("invalid", "cursor_gone", "not_acceptable"),
)


class Waiting:
    """Wakes those who wait when something may have changed. On the reactor thread alone."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiting: list[Deferred[None]] = []
        self._loop = LoopingCall(self.changed)
        self._loop.clock = reactor
        self.is_draining = False

    def start(self) -> None:
        self._loop.start(LOOK_SECONDS, now=False)

    def changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.called:
                one.callback(None)

    async def next(self) -> None:
        """Until something may have changed."""
        one: Deferred[None] = Deferred()
        self._waiting.append(one)
        try:
            await one
        finally:
            if one in self._waiting:
                self._waiting.remove(one)
        await deferLater(self._reactor, PAUSE_SECONDS, lambda: None)

    def drain(self) -> None:
        self.is_draining = True
        if self._loop.running:
            self._loop.stop()
        self.changed()


class Together:
    """Calls into the domain that several ask for at the same moment are made once."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._running: dict[Any, list[Deferred[Any]]] = {}

    async def call(self, key: Any, function: Callable[..., Any], *args: Any) -> Any:
        mine: Deferred[Any] = Deferred()
        if key in self._running:
            self._running[key].append(mine)
        else:
            self._running[key] = [mine]
            self._threads.call(function, *args).addBoth(self._done, key)
        return await mine

    def _done(self, result: Any, key: Any) -> None:
        for one in self._running.pop(key):
            if not one.called:
                one.callback(result)


class ChangesResource(Native):
    parameters = frozenset({"since", "limit"})
    offers = (NDJSON, EVENT_STREAM)

    def __init__(
        self, reactor: Any, threads: Threads, shared: Together, waiting: Waiting, most_seconds: int
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._threads = threads
        self._shared = shared
        self._waiting = waiting
        self._most_seconds = most_seconds

    async def answer(self, request: Request) -> None:
        query = parse_qs(request.uri.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)
        since = request.getHeader("last-event-id") or query.get("since", [""])[-1]
        header, session = users.shown_by(request)
        cursor = await self._threads.call(admit, header, session, since)
        most = limit_of(query.get("limit", [str(DEFAULT)])[-1])
        if EVENT_STREAM in (request.getHeader("accept") or ""):
            await self._stream(request, cursor, most)
            return
        seconds = min(wait(request.getHeader("prefer")), self._most_seconds)
        page = await self._page(cursor, most, seconds)
        if seconds:
            request.setHeader("Preference-Applied", f"wait={seconds}")
        lines = await self._threads.call(lines_of, page)
        request.setHeader("Cache-Control", "no-store")
        respond_packed(request, lines, NDJSON)

    async def _page(self, cursor: feed.Cursor, most: int, seconds: int) -> feed.Page:
        """The first that has changes, or what there is after so many seconds."""
        deadline = self._reactor.seconds() + seconds
        page = await self.read(cursor, most)
        while not (page.changes or page.more or self._waiting.is_draining):
            left = deadline - self._reactor.seconds()
            if left <= 0 or not await self._woken(left):
                break
            page = await self.read(page.cursor, most)
        return page

    async def _woken(self, seconds: float) -> bool:
        """Whether something may have changed within so many seconds."""
        found = Deferred.fromCoroutine(self._waiting.next())
        try:
            await found.addTimeout(seconds, self._reactor)
        except TimedOut:
            return False
        return True

    async def _stream(self, request: Request, cursor: feed.Cursor, most: int) -> None:
        if announced(request):
            return
        stream = Stream(self._reactor, request, MAX_STREAM_SECONDS)
        while not (stream.is_over or self._waiting.is_draining):
            page = await self.read(cursor, most)
            for kind, data, identity in await self._threads.call(events_of, page):
                stream.send(kind, data, identity)
            if page.cursor != cursor and not page.more:
                # So that whoever comes back later does not read the stretch again.
                stream.note(page.cursor.encode())
            cursor = page.cursor
            await stream.has_room()
            if not page.more:
                await self._waiting.next()
        stream.finish()

    async def read(self, cursor: feed.Cursor, most: int) -> feed.Page:
        return await read(self._shared, cursor, most)


async def read(shared: Together, cursor: feed.Cursor, most: int) -> feed.Page:
    page: feed.Page = await shared.call((cursor, most), feed.read, cursor, most)
    return page


def lines_of(page: feed.Page) -> bytes:
    """In a thread: a page may have a megabyte."""
    lines = [dumps({"kind": each.kind, **each.body}) for each in page.changes]
    lines.append(dumps({"cursor": page.cursor.encode(), "more": page.more}))
    return b"\n".join(lines) + b"\n"


def events_of(page: feed.Page) -> list[tuple[str, bytes, str]]:
    """The kind, data and id of each event. In a thread, as the lines."""
    return [(each.kind, dumps(each.body), page.after(each).encode()) for each in page.changes]


def admit(header: str, session: str, since: str) -> feed.Cursor:
    """In a thread. Raises Unauthorized, Forbidden, Invalid, CursorGone."""
    users.viewer(header, session)
    return feed.decode(since)


def limit_of(text: str) -> int:
    """Raises Invalid."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST))):
        text = "0"
    if not 1 <= int(text) <= MOST:
        raise Invalid(f"limit must be a number from 1 to {MOST}", field="limit")
    return int(text)
