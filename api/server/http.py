"""Twisted's Site and Request with routes, body limits, a cap on connections and an access log."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.web import server
from twisted.web.resource import IResource

from api import metrics, problems
from api.acting import request_id_of
from api.limits import MAX_STRANGERS_BYTES, SMALL, BodyLimit, limit_of
from api.server.board import Slot
from api.server.channel import IDLE_SECONDS, Channel
from api.server.unread import Unread
from tagmill.config import MIB
from tagmill.errors import TagmillError, TooLarge
from tagmill_wire import tracing

log = structlog.get_logger("tagmill.access")

# A refused client is still sending. Closing at once would reset the connection, and it would never
# read why; so its bytes are read and dropped for this long.
LINGER_SECONDS = 10
# Routes whose traffic would drown the rest of the log.
ROUTINE = frozenset(
    {
        "lease",
        "batch",
        "image",
        "heartbeat",
        "complete",
        "workers",
        "healthz",
        "readyz",
        "metrics",
        "static",
    }
)
# Waiting for work, and being looked at, is part of nothing.
UNTRACED = frozenset({"lease", "heartbeat", "healthz", "readyz", "metrics", "static"})
# Refused connections are logged so often at most.
REFUSAL_LOG_SECONDS = 10.0
RESOURCES = frozenset(
    {
        "changes",
        "clusters",
        "definitions",
        "nodes",
        "partitions",
        "places",
        "previews",
        "rebuilds",
        "tags",
        "workers",
    }
)


# What pages of other origins may send, and read of answers.
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
ALLOWED = (
    "Authorization, Content-Type, Content-Encoding, Idempotency-Key, If-Match, If-None-Match, "
    "Last-Event-ID, Prefer, X-Request-Id"
)
# As Django's SecurityMiddleware and XFrameOptionsMiddleware have it.
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
EXPOSED = (
    "ETag, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, "
    "Tagmill-Settled, X-Request-Id"
)


class Intake(Protocol):
    """Takes a request's body while it arrives, instead of the request itself."""

    def feed(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def lost(self) -> None: ...


class Gate(Protocol):
    """Keeps the rest of a large body in its socket until its sender is known."""

    def hold(self) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class Route:
    """`make` gets the groups of `pattern` (which matches the whole path). `limit`: of a body; None
    where Django answers, whose view declares it."""

    name: str
    pattern: re.Pattern[bytes]
    make: Callable[..., IResource]
    limit: BodyLimit | None = None


class Request(server.Request):
    """Refuses a body that is too large before it is read, and hands out those that are streamed."""

    channel: Any
    site: Site
    route = "other"
    began = 0.0
    request_id = ""
    trace = ""
    """Its place in a trace, where it has one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._received = 0
        self._limit = SMALL
        self.intake: Intake | None = None
        self._gate: Gate | None = None
        self._lingering: Any = None
        self.is_refused = False
        self.body_ended = False
        self._span: tracing.Span | None = None

    def gotLength(self, length: int | None) -> None:
        self.site = self.channel.site
        self.method, self.uri, self.clientproto = (
            self.channel._command,
            self.channel._path,
            self.channel._version,
        )
        self.path = self.uri.partition(b"?")[0]
        self._drop_ambiguous_headers()
        self.request_id = request_id_of(self.getHeader("x-request-id"))
        # Django's views and what they log have the same.
        self.requestHeaders.setRawHeaders(b"x-request-id", [self.request_id.encode()])
        self._limit = self.site.limit(self.path) if length != 0 else SMALL
        self.intake = self.site.intake(self)
        if self.intake is not None:
            self.content = BytesIO()
            self.site.in_flight.add(self)
        elif length is not None and length > self._limit.size:
            self.content = BytesIO()
            self.fail(self._too_large())
        else:
            super().gotLength(length)
            if self._limit.size > MAX_STRANGERS_BYTES and (
                length is None or length > MAX_STRANGERS_BYTES
            ):
                self._gate = self.site.gate(self)

    def _drop_ambiguous_headers(self) -> None:
        """WSGI writes `X_Forwarded_For` and `X-Forwarded-For` alike: a client could pass off the
        one, which proxies let through, as the other, which they set."""
        for name, _ in list(self.requestHeaders.getAllRawHeaders()):
            if b"_" in name:
                self.requestHeaders.removeHeader(name)

    def getHeader(self, key: Any) -> Any:
        """Accepts any byte in a header: given text as key, Twisted would decode UTF-8 or raise."""
        if isinstance(key, bytes):
            return super().getHeader(key)
        value = super().getHeader(key.encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    def joined(self, name: str) -> str | None:
        """A header that is a list, which a client may send in several lines."""
        lines = self.requestHeaders.getRawHeaders(name.encode("latin-1"), [])
        return b",".join(lines).decode("latin-1") if lines else None

    def handleContentChunk(self, data: bytes) -> None:
        if self.is_refused:
            return
        if self.intake is not None:
            self.intake.feed(data)
            return
        self._received += len(data)
        if self._received > self._limit.size:
            self.fail(self._too_large())
            return
        super().handleContentChunk(data)
        if self._gate is not None:
            self._gate.hold()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.body_ended = True
        self._end_gate()
        if self.is_refused:
            self.finish()
            return
        if self.requestHeaders.hasHeader(b"transfer-encoding"):
            # WSGI knows a body by its length alone, and here it is known by now.
            self.requestHeaders.removeHeader(b"transfer-encoding")
            self.requestHeaders.setRawHeaders(b"content-length", [b"%d" % self._received])
        super().requestReceived(command, path, version)
        if self.intake is not None:
            self.intake.end()

    def process(self) -> None:
        self.began = time.monotonic()
        self.site.in_flight.add(self)
        if self.site.is_draining:
            self.part()
        if not self._answers_another_origin():
            super().process()

    def _answers_another_origin(self) -> bool:
        """Lets pages of the origins in TAGMILL_CORS_ORIGINS read the answer. Whether that was all
        that was asked."""
        origin = self.getHeader("origin")
        if origin is None or origin not in self.site.origins:
            return False
        self.setHeader("Access-Control-Allow-Origin", origin)
        self.setHeader("Access-Control-Expose-Headers", EXPOSED)
        self.responseHeaders.addRawHeader(b"Vary", b"Origin")
        if self.method != b"OPTIONS" or not self.getHeader("access-control-request-method"):
            return False
        self.setHeader("Access-Control-Allow-Methods", METHODS)
        self.setHeader("Access-Control-Allow-Headers", ALLOWED)
        self.setHeader("Access-Control-Max-Age", "600")
        self.setResponseCode(204)
        self.finish()
        return True

    def begin_trace(self) -> None:
        """Once its route is known. Django's views find the place in the header, as its id."""
        above = self.getHeader(tracing.HEADER) or ""
        self.requestHeaders.removeHeader(tracing.HEADER)
        if self.route in UNTRACED:
            return
        method = self.method.decode("ascii", "replace")
        is_root = self.route not in ROUTINE
        name = f"{method} {self.route}"
        self._span = tracing.begin(
            name, above, is_root=is_root, path=self.path.decode("ascii", "replace")
        )
        if self._span is not None:
            self.trace = self._span.place
            self.requestHeaders.setRawHeaders(tracing.HEADER.encode(), [self.trace.encode()])

    def part(self) -> None:
        """Its answer is the last one on this connection, and says so where it has not begun."""
        self.channel.persistent = False
        if not self.startedWriting:
            self.setHeader("Connection", "close")

    def fail(self, error: TagmillError) -> None:
        """Answer with the error's problem document, also while the body is still arriving."""
        body = problems.document(error)
        self.setResponseCode(error.status)
        for name, value in problems.headers(error).items():
            self.setHeader(name, value)
        self.setHeader("Content-Length", str(len(body)))
        if self.body_ended:
            self.write(body)
            self.finish()
            return
        self.is_refused = True
        self.began = time.monotonic()
        self.requestHeaders.removeHeader(b"expect")
        self.setHeader("Connection", "close")
        self.channel.persistent = False
        self.write(body)
        reactor: Any = self.site.reactor
        self._lingering = reactor.callLater(LINGER_SECONDS, self.channel.loseConnection)

    def write(self, data: bytes) -> None:
        if not self.startedWriting:
            self._add_headers()
        super().write(data)

    def _add_headers(self) -> None:
        """What every answer has, whoever answers: Django has set them already, each once."""
        for name, value in (*SECURITY.items(), ("X-Request-Id", self.request_id)):
            if not self.responseHeaders.hasHeader(name):
                self.setHeader(name, value)

    def finish(self) -> None:
        self._leave()
        super().finish()

    def connectionLost(self, reason: Any) -> None:
        if not self.request_id:
            # Its head was never read to the end: nobody has begun with it.
            super().connectionLost(reason)
            return
        self._leave()
        if self.startedWriting and not self.finished:
            # A client that has its whole answer may leave before the request is finished.
            self.site.log(self)
        if self.intake is not None:
            self.intake.lost()
        self._end_gate()
        super().connectionLost(reason)

    def _leave(self) -> None:
        self.site.left(self)
        if self._span is not None:
            is_fault = self.code >= 500  # noqa: PLR2004 - the server's own
            self._span.end(error=str(self.code) if is_fault else "", status=self.code)
        if self._lingering is not None and self._lingering.active():
            self._lingering.cancel()

    def _end_gate(self) -> None:
        if self._gate is not None:
            self._gate.end()

    def _too_large(self) -> TooLarge:
        limit = self._limit
        return TooLarge(f"the body is larger than {limit}", limit=limit.size)


@dataclass(frozen=True)
class Caps:
    """Connections at once: `total` to all processes of the server. `address`: of one address, here;
    None where proxies hide the clients'. `unread`: bytes that wait for all clients together."""

    total: int
    address: int | None
    unread: int = 256 * MIB


class Site(server.Site):
    """The routes: native ones first, Django for everything else."""

    protocol: Any = Channel

    def __init__(
        self,
        reactor: Any,
        routes: Sequence[Route],
        fallback: IResource,
        *,
        caps: Caps,
        intake: Callable[[Request], Intake | None],
        gate: Callable[[Request], Gate],
        slot: Slot | None = None,
        origins: Collection[str] = (),
    ) -> None:
        # Django parses forms itself.
        super().__init__(
            fallback, Request, parsePOSTFormSubmission=False, reactor=reactor, timeout=IDLE_SECONDS
        )
        self._fallback = fallback
        self.routes = routes
        self.intake = intake
        self.gate = gate
        self._caps = caps
        self.origins = frozenset(origins)
        self._connections: Counter[str] = Counter()
        self._slot = slot
        self._refusal_logged: float | None = None
        self.unread = Unread(caps.unread)
        self.in_flight: set[Request] = set()
        self._idle: list[Deferred[None]] = []
        self._channels: set[Channel] = set()
        self._all_closed: Deferred[None] | None = None
        self.is_draining = False

    def getResourceFor(self, request: Request) -> IResource:
        made = self._found(request)
        if tracing.is_on():
            request.begin_trace()
        return made

    def _found(self, request: Request) -> IResource:
        for route in self.routes:
            found = route.pattern.fullmatch(request.path)
            if found:
                request.route = route.name
                return route.make(*found.groups())
        request.route = route_of(request.path)
        return self._fallback

    def buildProtocol(self, addr: Any) -> Any:
        """None refuses the connection: it is closed before a byte is read."""
        host = addr.host
        of_address = self._caps.address
        connections = self.connections if self._slot is None else self._slot.all_connections
        if connections >= self._caps.total or (
            of_address is not None and self._connections[host] >= of_address
        ):
            metrics.REFUSED_CONNECTIONS.inc()
            self._log_refusal(host)
            return None
        self._connections[host] += 1
        self._counted()
        channel = super().buildProtocol(addr)
        channel.client_host = host
        self._channels.add(channel)
        return channel

    def disconnected(self, channel: Channel) -> None:
        self.unread.set(channel, 0)
        self._connections[channel.client_host] -= 1
        if not self._connections[channel.client_host]:
            del self._connections[channel.client_host]
        self._counted()
        self._channels.discard(channel)
        if self._all_closed is not None and not self._channels:
            closed, self._all_closed = self._all_closed, None
            closed.callback(None)

    def _counted(self) -> None:
        if self._slot is not None:
            self._slot.connections = self.connections

    @property
    def connections(self) -> int:
        return self._connections.total()

    def _log_refusal(self, host: str) -> None:
        reactor: Any = self.reactor
        now = reactor.seconds()
        if self._refusal_logged is None or now - self._refusal_logged >= REFUSAL_LOG_SECONDS:
            self._refusal_logged = now
            log.warning(
                "connections refused: more than TAGMILL_CONNECTIONS, or than"
                " TAGMILL_CONNECTIONS_PER_ADDRESS of one address",
                client=host,
                connections=self.connections,
                of_address=self._connections[host],
            )

    def limit(self, path: bytes) -> BodyLimit:
        """The limit of a body that is sent to the path."""
        for route in self.routes:
            if route.limit is not None and route.pattern.fullmatch(path):
                return route.limit
        return limit_of(unquote_to_bytes(path).decode("utf-8", "replace"))

    def left(self, request: Request) -> None:
        """Called when a request is over, for whatever reason; may be called twice."""
        self.in_flight.discard(request)
        if not self.in_flight:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)

    def drain(self) -> Deferred[None]:
        """Fires when the requests that run are answered, and the answers have left: what was
        written is in a buffer at first, and would be lost with it."""
        self.is_draining = True
        for request in self.in_flight:
            request.part()
        return self._closed_when_idle()

    def _closed_when_idle(self) -> Deferred[None]:
        # A request counts as over before its end has been written.
        return self.when_idle().addCallback(lambda _: deferLater(self.reactor, 0, self._close))

    def _close(self) -> Deferred[None]:
        if self.in_flight:
            return self._closed_when_idle()
        closed: Deferred[None] = Deferred()
        if not self._channels:
            closed.callback(None)
            return closed
        self._all_closed = closed
        for channel in list(self._channels):
            if not channel.transport.disconnecting:
                channel.loseConnection()
        return closed

    def when_idle(self) -> Deferred[None]:
        """Fires when no request is being answered."""
        waiting: Deferred[None] = Deferred()
        if self.in_flight:
            self._idle.append(waiting)
        else:
            waiting.callback(None)
        return waiting

    def log(self, request: Any) -> None:
        """One line a request, without its query: a query may hold what nobody else should read."""
        seconds = time.monotonic() - request.began if request.began else 0.0
        method = request.method.decode("ascii", "replace")
        metrics.observe_request(method, request.route, request.code, seconds)
        write = log.debug if request.route in ROUTINE and request.code < 500 else log.info  # noqa: PLR2004
        with tracing.at(request.trace):
            write(
                "request",
                method=method,
                path=request.path.decode("ascii", "replace"),
                status=request.code,
                milliseconds=round(seconds * 1000, 1),
                client=request.getClientAddress().host,
                request_id=request.request_id,
            )


def route_of(path: bytes) -> str:
    """What a path counts under in the metrics: few values, whatever clients ask for."""
    parts = path.decode("ascii", "replace").strip("/").split("/")
    match parts:
        case ["api", "v1", resource, *_] if resource in RESOURCES:
            return resource
        case ["admin" | "static" as first, *_]:
            return first
        case ["api", "schema" | "docs", *_]:
            return "docs"
    return "other"
