"""The API of docs/protocol.md, as a worker calls it.

Every method answers with a wire message or raises an error of `errors`; nothing of Twisted's or
treq's gets out. One pool of persistent connections.
"""

from __future__ import annotations

import email.utils
import time
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import orjson
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
)
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    HTTPConnectionPool,
    ResponseDone,
    ResponseFailed,
)
from twisted.web.error import SchemeNotSupported
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from tagmill_wire import frames, tracing
from tagmill_wire.images import IMAGE, MEDIA_TYPE, NEWEST
from tagmill_wire.messages import (
    TOKEN_SCHEME,
    Completion,
    CompletionAnswer,
    ExpressionSet,
    GiveUp,
    Heartbeat,
    HeartbeatAnswer,
    LeaseAnswer,
    LeaseRequest,
    Message,
    Register,
    Registered,
    Share,
    ShareRequest,
    WireError,
    dump,
    load,
)
from tagmill_wire.pagehead import PageHead
from tagmill_worker import pages
from tagmill_worker.cache import bundle
from tagmill_worker.dictionaries import Dictionaries
from tagmill_worker.errors import (
    AnswerTooLarge,
    ImageMissing,
    ImagesOff,
    NotFound,
    ProtocolError,
    Refused,
    ServerError,
    Unauthorized,
    Unavailable,
    UnknownSet,
    WorkerGone,
)
from tagmill_worker.pages import Page

T = TypeVar("T", bound=Message)

CONNECT_SECONDS = 10.0
# From the request to the last byte of the answer. A page of 4 MiB XML is some 100 kB on the wire.
ANSWER_SECONDS = 60.0
# An answer that is not a page: 256 leases of 500 expressions are some 20 MB.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# Heartbeat, long-poll, page, completion, and a page to be warmed at the same time.
CONNECTIONS = 5
MAX_DETAIL = 300
# Servers of before know fewer of them, and answer with what they know. The second of these brings
# every dictionary along.
BATCH_TYPES = f"{frames.NAMED_TYPE}, {frames.MEDIA_TYPE}, application/json"
WHOLE_BATCH_TYPES = f"{frames.MEDIA_TYPE}, application/json"
# By the code of the problem that says so.
MISSING = {
    "unknown_expression_set": UnknownSet,
    "image_missing": ImageMissing,
    "images_off": ImagesOff,
}
# An image takes this much longer to send or fetch, at worst.
MIN_BYTES_PER_SECOND = 512 * 1024


class Client:
    """`server_url` is the API's root, as http://host:8080. `seconds` bounds every answer."""

    def __init__(
        self,
        reactor: Any,
        server_url: str,
        token: str,
        *,
        seconds: float = ANSWER_SECONDS,
        most_page_bytes: int = pages.MAX_BYTES,
    ) -> None:
        self._reactor = reactor
        self._root = server_url.rstrip("/") + "/api/v1/"
        self._authorization = f"{TOKEN_SCHEME} {token}"
        self._seconds = seconds
        self._most_page_bytes = most_page_bytes
        self._places: dict[str, str] = {}
        self._dictionaries = Dictionaries(self._dictionary)
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._pool.maxPersistentPerHost = CONNECTIONS
        agent = Agent(reactor, connectTimeout=CONNECT_SECONDS, pool=self._pool)
        self._http = HTTPClient(cast(Any, agent))

    async def register(self, message: Register) -> Registered:
        return await self._post("workers/register", message, Registered)

    async def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        return await self._post("workers/heartbeat", message, HeartbeatAnswer)

    async def lease(self, message: LeaseRequest, wait: int) -> LeaseAnswer:
        """Answers within `wait` seconds, with no leases when there was no work."""
        headers, answer = await self._posted("workers/lease", message, LeaseAnswer, wait=wait)
        self._note(headers, answer)
        return answer

    async def complete(self, message: Completion) -> CompletionAnswer:
        headers, answer = await self._posted("workers/complete", message, CompletionAnswer)
        self._note(headers, answer.next)
        return answer

    def place(self, lease: str) -> str:
        """The place in a trace that a lease belongs to; asked once."""
        return self._places.pop(lease, "")

    def _note(self, headers: Headers, answer: LeaseAnswer | None) -> None:
        if tracing.is_on() and answer is not None:
            # What is still there are leases that were given back at once.
            self._places.clear()
            place = _header(headers, tracing.HEADER) or ""
            self._places.update((lease.lease, place) for lease in answer.leases)

    async def give_up(self, message: GiveUp) -> None:
        await self._ask("POST", "workers/fail", dump(message), MAX_ANSWER_BYTES)

    async def share(self, message: ShareRequest) -> Share:
        return await self._post("workers/share", message, Share)

    async def batch(
        self,
        partition: int,
        *,
        incarnation: str,
        since: int | None,
        after: int | None,
        max_nodes: int,
        max_bytes: int,
    ) -> Page:
        """One page of a partition. Raises NotFound where the partition has gone, WorkerGone where
        the incarnation has, AnswerTooLarge for a page above `most_page_bytes`."""
        asked = {
            "incarnation": incarnation,
            "since": since,
            "after": after,
            "max_nodes": max_nodes,
            "max_bytes": max_bytes,
        }
        query = urlencode({key: value for key, value in asked.items() if value is not None})
        path = f"partitions/{partition}/nodes?{query}"
        headers, body = await self._ask(
            "GET", path, None, self._most_page_bytes, accept=BATCH_TYPES
        )
        try:
            named = _header(headers, frames.DICTIONARIES)
            dictionaries = await self._dictionaries.named_in(named, partition)
        except NotFound:
            # One was deleted in this moment, or is damaged.
            headers, body = await self._ask(
                "GET", path, None, self._most_page_bytes, accept=WHOLE_BATCH_TYPES
            )
            dictionaries = []
        try:
            head = PageHead.read(lambda name: _header(headers, name))
        except WireError as error:
            raise ProtocolError(f"not a page: {error}") from None
        is_zstd = _is_zstd(headers)
        return pages.read(
            head, partition, body, is_zstd, self._most_page_bytes, dictionaries=dictionaries
        )

    async def _dictionary(self, partition: int, key: int) -> tuple[bytes, bool]:
        path = f"partitions/{partition}/dictionaries/{key}"
        headers, body = await self._ask("GET", path, None, frames.MAX_DICTIONARY_BYTES)
        return body, _is_zstd(headers)

    async def expression_set(self, version: str) -> ExpressionSet:
        """Raises UnknownSet where it was superseded a while ago."""
        path = f"expression-sets/{version}"
        headers, body = await self._ask("GET", path, None, MAX_ANSWER_BYTES)
        if _is_zstd(headers):
            body = pages.unpack(body, MAX_ANSWER_BYTES)
        try:
            return load(ExpressionSet, body)
        except WireError as error:
            raise ProtocolError(f"{path}: {error}") from None

    async def image(self, partition: int, schema: str, incarnation: str) -> tuple[str, bytes]:
        """The newest image that was shared: its name, and its bytes, which are not looked at.
        Raises ImageMissing, and ImagesOff."""
        query = urlencode({"incarnation": incarnation, "schema": schema})
        path = f"partitions/{partition}/images/{NEWEST}?{query}"
        headers, body = await self._ask("GET", path, None, bundle.MAX_BYTES)
        return _header(headers, IMAGE) or "", body

    async def share_image(self, partition: int, name: str, body: bytes) -> None:
        """Also where the server has one as new already. Raises ImagesOff."""
        path = f"partitions/{partition}/images/{name}"
        longer = len(body) // MIN_BYTES_PER_SECOND
        await self._ask("PUT", path, body, MAX_ANSWER_BYTES, longer, kind=MEDIA_TYPE)

    async def close(self) -> None:
        await self._pool.closeCachedConnections()

    async def _post(self, path: str, message: Message, kind: type[T]) -> T:
        return (await self._posted(path, message, kind))[1]

    async def _posted(
        self, path: str, message: Message, kind: type[T], wait: int = 0
    ) -> tuple[Headers, T]:
        headers, body = await self._ask("POST", path, dump(message), MAX_ANSWER_BYTES, wait)
        try:
            return headers, load(kind, body)
        except WireError as error:
            raise ProtocolError(f"{path}: {error}") from None

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        most: int,
        wait: int = 0,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[Headers, bytes]:
        """Headers and body of a good answer. Raises ServerError."""
        asked: dict[str | bytes, str | bytes] = {
            "Authorization": self._authorization,
            "Accept": accept,
        }
        if place := tracing.here():
            asked[tracing.HEADER] = place
        if body is None:
            asked["Accept-Encoding"] = "zstd"
        else:
            asked["Content-Type"] = kind
        if wait and kind != MEDIA_TYPE:
            asked["Prefer"] = f"wait={wait}"
        exchange = Deferred.fromCoroutine(self._exchange(method, path, asked, body, most))
        is_late = False

        def expire() -> None:
            nonlocal is_late
            is_late = True
            exchange.cancel()

        timer = self._reactor.callLater(self._seconds + wait, expire)
        try:
            status, headers, data = await exchange
        except Exception as error:
            if is_late:
                message = f"{path}: no answer within {self._seconds + wait:g} s"
                raise Unavailable(message) from None
            raise translated(path, error) from None
        finally:
            if timer.active():
                timer.cancel()
        if status in (200, 201):
            return headers, data
        raise error_of(status, headers, data)

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: dict[str | bytes, str | bytes],
        body: bytes | None,
        most: int,
    ) -> tuple[int, Headers, bytes]:
        # unbuffered: treq would keep the body a second time. Its wrapper adds nothing needed here.
        response = await self._http.request(
            method, self._root + path, data=body, headers=headers, unbuffered=True
        )
        return response.code, response.headers, await collect(response, most)


def _is_zstd(headers: Headers) -> bool:
    """Raises ProtocolError for an encoding that nobody asked for."""
    coding = headers.getRawHeaders(b"content-encoding", [b"identity"])[-1].lower()
    # treq leaves an empty header where it was none, or gzip, which it has undone.
    if coding not in (b"zstd", b"identity", b""):
        raise ProtocolError(f"an answer in the encoding {coding!r}")
    return coding == b"zstd"


def _header(headers: Headers, name: str) -> str | None:
    values = headers.getRawHeaders(name)
    return values[-1] if values else None


class _Collector(Protocol):
    """Gathers a body of `most` bytes at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._chunks: list[bytes] = []
        self.done: Deferred[bytes] = Deferred(self._cancel)

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            self._abort()
            self._fail(AnswerTooLarge(f"an answer of more than {self._most} bytes"))
            return
        self._chunks.append(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        if self.done.called:
            return
        if reason is None or reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._chunks))
        else:
            self._fail(Unavailable(f"the answer broke off after {self._size} bytes"))

    def _fail(self, error: ServerError) -> None:
        self._chunks.clear()
        if not self.done.called:
            self.done.errback(error)

    def _cancel(self, done: Deferred[bytes]) -> None:
        # First, or the lost connection would be taken for the server's doing.
        done.errback(CancelledError())
        self._abort()

    def _abort(self) -> None:
        abort = getattr(self.transport, "abortConnection", None)
        if abort is None:
            abort = getattr(self.transport, "loseConnection", None)
        if abort is not None:
            abort()


def collect(response: Any, most: int) -> Deferred[bytes]:
    """The body. Fails with Unavailable when it breaks off, AnswerTooLarge when it is too long."""
    collector = _Collector(most)
    response.deliverBody(collector)
    return collector.done


def error_of(status: int, headers: Headers, body: bytes) -> ServerError:
    """What a status and a problem document mean to a worker."""
    code, detail = problem(body)
    if status in (401, 403):
        return Unauthorized(detail)
    if status == HTTPStatus.GONE:
        return WorkerGone(detail)
    if status == HTTPStatus.NOT_FOUND:
        return MISSING.get(code, NotFound)(detail)
    if status in (408, 425, 429) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(f"{status} {code}: {detail}", retry_after(headers), status)
    if status >= HTTPStatus.BAD_REQUEST:
        return Refused(status, code, detail)
    return ProtocolError(f"an answer with status {status}")


def problem(body: bytes) -> tuple[str, str]:
    """Code and detail of an RFC 9457 problem; of anything else, its first characters."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        return "", body[:MAX_DETAIL].decode("utf-8", "replace")
    detail = value.get("detail") or value.get("title") or ""
    return str(value.get("code", "")), str(detail)[:MAX_DETAIL]


def retry_after(headers: Headers) -> float | None:
    """The seconds of Retry-After, in either of its forms."""
    raw = headers.getRawHeaders("retry-after")
    if not raw:
        return None
    if raw[-1].isdigit():
        return float(raw[-1])
    try:
        when = email.utils.parsedate_to_datetime(raw[-1])
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())


def translated(path: str, error: Exception) -> Exception:
    """What came instead of an answer, as ServerError; CancelledError stays what it is."""
    # ResponseFailed says nothing itself: the reasons are inside.
    reasons = [reason.value for reason in getattr(error, "reasons", None) or []]
    cancelled = (CancelledError, ConnectingCancelledError)
    if any(isinstance(item, cancelled) for item in (error, *reasons)):
        return CancelledError()
    if isinstance(error, ServerError):
        return error
    if isinstance(error, SchemeNotSupported):
        return Refused(0, "", str(error))
    text = "; ".join(str(item) or type(item).__name__ for item in reasons or [error])
    if isinstance(error, (ConnectError, ConnectionClosed, DNSLookupError, ResponseFailed)):
        return Unavailable(f"{path}: {text}")
    # Twisted's HTTP parser raises what it likes on garbage.
    return ProtocolError(f"{path}: {type(error).__name__}: {text}")
