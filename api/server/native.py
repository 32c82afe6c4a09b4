"""What native endpoints share: a coroutine answers, errors become problem documents."""

from __future__ import annotations

import abc
from typing import Any, ClassVar
from urllib.parse import parse_qs

import structlog
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from api import packing, problems, strict
from api.server.http import Request
from api.strict import (
    refuse_accept,
    refuse_conditions,
    refuse_encoding,
    refuse_type,
    refuse_unknown,
)
from tagmill.errors import TagmillError
from tagmill_wire import tracing


class Native(Resource, abc.ABC):
    """`answer` runs on the reactor thread and must not block; a client that leaves cancels it.

    `parameters`: the query parameters known; None where the endpoint checks them itself, or takes
    whatever a probe sends. `offers`: the media types that `Accept` may choose from, where it is
    looked at."""

    isLeaf = True
    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD")
    parameters: ClassVar[frozenset[str] | None] = frozenset()
    offers: ClassVar[tuple[str, ...]] = ()

    def render(self, request: Request) -> Any:
        method = request.method.decode("ascii", "replace")
        if method == "OPTIONS":
            request.setHeader("Allow", ", ".join((*self.methods, "OPTIONS")))
            request.setResponseCode(204)
            request.finish()
            return NOT_DONE_YET
        if method not in self.methods:
            request.fail(problems.MethodNotAllowed(*self.methods, "OPTIONS"))
            return NOT_DONE_YET
        try:
            self.refuse(request)
        except TagmillError as error:
            request.fail(error)
            return NOT_DONE_YET
        with tracing.at(request.trace):
            running = Deferred.fromCoroutine(self.answer(request))
        request.notifyFinish().addErrback(lambda _: running.cancel())
        running.addErrback(self._failed, request)
        return NOT_DONE_YET

    def refuse(self, request: Request) -> None:
        """Raises what is wrong with the request, whoever it is from."""
        refuse_strange(request, self.parameters)
        if self.offers:
            refuse_accept(request.joined("accept"), *self.offers)

    @abc.abstractmethod
    async def answer(self, request: Request) -> None:
        """Write the whole answer, or raise."""

    def _failed(self, failure: Failure, request: Request) -> None:
        error = failure.value
        if request._disconnected or request.finished:
            if not isinstance(error, CancelledError):
                shown(error, request)
            return
        error = shown(error, request)
        if request.startedWriting:
            request.loseConnection()
        else:
            request.fail(error)


def shown(error: BaseException | None, request: Request) -> TagmillError:
    """What the client is to know of it. A bug is logged."""
    with structlog.contextvars.bound_contextvars(request_id=request.request_id):
        return problems.shown(error, request.path.decode("ascii", "replace"))


def refuse_strange(
    request: Request,
    parameters: frozenset[str] | None,
    *,
    understands_conditions: bool = False,
    codings: tuple[str, ...] = (),
) -> None:
    """Raises UnknownField, ConditionNotSupported, UnsupportedMedia: as Django's views do."""
    if parameters is not None:
        query = request.uri.partition(b"?")[2].decode("latin-1")
        refuse_unknown(parse_qs(query, keep_blank_values=True), parameters, "parameter")
    sent = {name for name in strict.WRITING if request.requestHeaders.hasHeader(name)}
    refuse_conditions(
        request.method.decode("ascii", "replace"), sent, understood=understands_conditions
    )
    refuse_encoding(request.getHeader("content-encoding"), *codings)


def respond(
    request: Request, body: bytes, content_type: str = "application/json", status: int = 200
) -> None:
    """A complete answer, in one write, as it is."""
    request.setResponseCode(status)
    if status != 304:  # noqa: PLR2004
        request.setHeader("Content-Type", content_type)
        request.setHeader("Content-Length", str(len(body)))
    request.write(body)
    request.finish()


def respond_packed(request: Request, body: bytes, content_type: str, status: int = 200) -> None:
    """The same, packed where the client takes it and it is worth it, as Django's answers are."""
    request.responseHeaders.addRawHeader(b"Vary", b"Accept-Encoding")
    coding = packing.coding_of(request.joined("accept-encoding") or "")
    if coding is not None and len(body) >= packing.MIN_BYTES:
        request.setHeader("Content-Encoding", coding)
        body = packing.pack(body, coding)
    respond(request, body, content_type, status)


def credentials(request: Request, scheme: str) -> str:
    """What follows `scheme` in the Authorization header. Raises Unauthorized."""
    header = (request.getHeader("authorization") or "").strip()
    given, _, token = header.partition(" ")
    if given.lower() != scheme.lower() or not token.strip():
        raise problems.Unauthorized(f"send Authorization: {scheme} <token>", scheme)
    return token.strip()


def body_of(request: Request) -> bytes:
    """The whole body."""
    if request.content is None:
        return b""
    body: bytes = request.content.read()
    return body


def json_of(request: Request) -> bytes:
    """The whole body, which is JSON where the request does not say what it is. Raises
    UnsupportedMedia."""
    if (kind := request.getHeader("content-type")) is not None:
        refuse_type(kind, "application/json")
    return body_of(request)
