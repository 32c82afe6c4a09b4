"""POST /api/v1/tags/preview and GET of one, with `Prefer: wait=N`: held without a thread.

Django answers first, with all that it checks; an answer that is not complete yet is kept back until
it is, its preview is gone, or the time is over. Without a wait, Django's answer is the answer.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from io import BytesIO
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote_to_bytes
from uuid import UUID

import orjson
import structlog
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from api.encoding import dumps
from api.rest import previews as resource
from api.server import users
from api.server.http import Request, route_of
from api.server.lease import wait
from api.server.native import Native, body_of, respond
from api.server.threads import Threads
from tagmill.errors import Busy, DatabaseUnavailable, NotFound, PreviewGone
from tagmill.tags import previews

log = structlog.get_logger("tagmill.previews")

T = TypeVar("T")

# Completions that come closer together are looked at together: after so long for each preview, and
# after the longest at the latest.
THROTTLE_SECONDS = 0.01
LONGEST_THROTTLE_SECONDS = 0.2
# A notification may have been lost.
LOOK_AGAIN_SECONDS = 1.0
ACCEPTED = 202
# Previews that are stored at the same moment, clients that have a turn or wait for it, and the
# turns that one of them may wait for.
MAX_AT_ONCE = 4
MAX_CLIENTS = 1000
MAX_WAITING = 16
FORWARDED = frozenset({"location", "retry-after", "www-authenticate", "allow"})


class Waiting:
    """Who waits for which preview. On the reactor thread alone."""

    def __init__(self, clock: Any, threads: Threads) -> None:
        self._clock = clock
        self._threads = threads
        self._waiters: dict[UUID, set[Deferred[None]]] = defaultdict(set)
        self._is_reading = False
        self._is_due = False
        self._looking = LoopingCall(self.changed)
        self._looking.clock = clock

    def start(self) -> None:
        self._looking.start(LOOK_AGAIN_SECONDS, now=False)

    def until_over(self, preview: UUID, seconds: float) -> Deferred[None]:
        """Fires when the preview is over or gone, or after so many seconds."""
        done: Deferred[None] = Deferred()
        self._waiters[preview].add(done)
        timer = self._clock.callLater(seconds, self._fire, preview, done)

        def end(result: Any) -> Any:
            if timer.active():
                timer.cancel()
            self._forget(preview, done)
            return result

        done.addBoth(end)
        # What happened between the first answer and now has been announced already.
        self.changed()
        return done

    def changed(self) -> None:
        """Some preview may have moved on."""
        if self._is_reading:
            self._is_due = True
        elif self._waiters:
            self._is_reading = True
            wanted = list(self._waiters)
            pause = min(THROTTLE_SECONDS * len(wanted), LONGEST_THROTTLE_SECONDS)
            self._threads.call(previews.progress, wanted).addCallbacks(
                self._tell, self._unreadable, callbackArgs=(wanted,)
            ).addBoth(lambda _: self._clock.callLater(pause, self._next))

    def drain(self) -> None:
        if self._looking.running:
            self._looking.stop()
        self._tell({}, list(self._waiters))

    def _next(self) -> None:
        self._is_reading = False
        if self._is_due:
            self._is_due = False
            self.changed()

    def _tell(self, found: dict[UUID, previews.Progress], wanted: list[UUID]) -> None:
        for preview in wanted:
            if preview not in found or found[preview].is_over:
                for done in list(self._waiters.get(preview, ())):
                    self._fire(preview, done)

    def _unreadable(self, failure: Failure) -> None:
        if not failure.check(DatabaseUnavailable):
            log.error("previews could not be read", exc_info=failure.value)

    def _fire(self, preview: UUID, done: Deferred[None]) -> None:
        self._forget(preview, done)
        if not done.called:
            done.callback(None)

    def _forget(self, preview: UUID, done: Deferred[None]) -> None:
        if preview in self._waiters:
            self._waiters[preview].discard(done)
            if not self._waiters[preview]:
                del self._waiters[preview]


class Turns:
    """One call at a time for each client, and few for all of them. On the reactor thread alone.

    While a preview is stored, it holds the jobs of all partitions, and no worker is given any of
    them: ten at once would leave hardly a gap. One that is stuck keeps its client's others waiting,
    and nobody else's.
    """

    def __init__(self) -> None:
        self._locks: dict[int, DeferredLock] = {}
        self._all = DeferredSemaphore(MAX_AT_ONCE)

    def __len__(self) -> int:
        return len(self._locks)

    async def run(self, client: int, call: Callable[..., Deferred[T]], *args: Any) -> T:
        """Raises Busy when too many wait already."""
        if client not in self._locks and len(self._locks) >= MAX_CLIENTS:
            raise Busy("many previews are being asked for: try again", retry_after=1)
        lock = self._locks.setdefault(client, DeferredLock())
        if len(lock.waiting) >= MAX_WAITING:
            raise Busy("your other previews come first: try again", retry_after=1)
        try:
            answer: T = await lock.run(self._all.run, call, *args)
        finally:
            if not (lock.locked or lock.waiting):
                self._locks.pop(client, None)
        return answer


class PreviewResource(Native):
    # Django looks at them.
    parameters = None
    methods: ClassVar[tuple[str, ...]] = ("GET", "POST")

    def __init__(
        self,
        waiting: Waiting,
        threads: Threads,
        django: WSGIHandler,
        fallback: Any,
        most_seconds: int,
    ) -> None:
        super().__init__()
        self._waiting = waiting
        self._threads = threads
        self._django = django
        self._fallback = fallback
        self._most_seconds = most_seconds
        self._asking, self._reading = Turns(), Turns()

    def render(self, request: Request) -> Any:
        method = request.method.decode("ascii", "replace")
        if method not in self.methods or not wait(request.getHeader("prefer")):
            # It counts as what it is, a request that nobody holds.
            request.route = route_of(request.path)
            return self._fallback.render(request)
        return super().render(request)

    async def answer(self, request: Request) -> None:
        seconds = min(wait(request.getHeader("prefer")), self._most_seconds)
        # A stranger never takes a turn.
        client = await self._threads.call(users.somebody, *users.shown_by(request))
        environment = _environment(request)
        status, headers, body = await self._asking.run(
            client, self._threads.call, _ask, self._django, environment
        )
        if status == ACCEPTED:
            uuid = UUID(orjson.loads(body)["uuid"])
            await self._waiting.until_over(uuid, seconds)
            status, body = await self._reading.run(
                client, self._threads.call, _read, environment, uuid
            )
        content_type = headers.pop("content-type", "application/json")
        for name in FORWARDED & headers.keys():
            request.setHeader(name, headers[name])
        request.setHeader("Preference-Applied", f"wait={seconds}")
        respond(request, body, content_type, status)


def _environment(request: Request) -> dict[str, Any]:
    """The request as WSGI has it (PEP 3333)."""
    peer, host = request.getClientAddress(), request.getHost()
    environment = {
        "REQUEST_METHOD": request.method.decode("latin-1"),
        "REMOTE_ADDR": peer.host,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.uri.partition(b"?")[2].decode("latin-1"),
        "CONTENT_TYPE": request.getHeader("content-type") or "",
        "CONTENT_LENGTH": request.getHeader("content-length") or "",
        "SERVER_NAME": request.getRequestHostname().decode("latin-1"),
        "SERVER_PORT": str(host.port),
        "SERVER_PROTOCOL": request.clientproto.decode("latin-1"),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if request.isSecure() else "http",
        "wsgi.input": BytesIO(body_of(request)),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        resource.WAITS: True,
    }
    for name, values in request.requestHeaders.getAllRawHeaders():
        key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        environment[key] = ",".join(value.decode("latin-1") for value in values)
    return environment


def _ask(django: WSGIHandler, environment: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """Django's status, headers (names in lower case) and body, asked for in a thread."""
    begun: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
        begun[:] = [int(status[:3]), {name.lower(): value for name, value in headers}]

    answer = django(environment, start)
    try:
        body = b"".join(answer)
    finally:
        answer.close()
    return begun[0], begun[1], body


def _read(environment: dict[str, Any], uuid: UUID) -> tuple[int, bytes]:
    """The status and the body as they are now, read in a thread. Raises PreviewGone."""
    request = WSGIRequest(environment)
    asked = resource.Asked.of(request)
    try:
        status, body = resource.answer(uuid, asked)
    except NotFound:
        raise PreviewGone(
            "the preview was cancelled, or a newer one of the same client took its place"
        ) from None
    return status, dumps(body)
