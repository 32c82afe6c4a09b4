"""GET /api/v1/expression-sets/{version}: the definitions that leases name by their version."""

from __future__ import annotations

import functools

import zstandard

from api.protocol import authenticated
from api.server.batches import ZSTD_LEVEL, accepts_zstd
from api.server.http import Request
from api.server.native import Native, credentials, respond
from api.server.operations import WORKERS, Answer, Content, Operation, Parameter
from api.server.threads import Threads
from tagmill.matches import expression_sets
from tagmill_wire.messages import TOKEN_SCHEME, ExpressionSet, dump

# Answers that are kept as they go over the wire: every worker asks for the same.
MAX_KEPT = 8

CACHED = {
    "ETag": "Of this version; `If-None-Match` takes it.",
    "Vary": "`Accept-Encoding, Authorization`",
    "Cache-Control": "`private, max-age=31536000, immutable`",
}
OPERATION = Operation(
    name="expression_sets",
    method="get",
    path="/api/v1/expression-sets/{version}",
    tag="worker protocol",
    schemes=WORKERS,
    summary="Read an expression set",
    errors=("unknown_expression_set",),
    description="The definitions of an expression set, which never change: see docs/protocol.md. "
    "404 with `unknown_expression_set` where it was superseded a while ago.",
    parameters=(
        Parameter("Accept-Encoding", "`zstd` packs the answer.", place="header"),
        Parameter("If-None-Match", "304 where this is the `ETag`.", place="header"),
    ),
    answers={
        200: Answer(
            "The definitions, packed where zstd is accepted.",
            Content.of(ExpressionSet),
            {"Content-Encoding": "`zstd`, where it is packed.", **CACHED},
        ),
        304: Answer("The client has it.", headers=CACHED),
    },
)


class ExpressionSetResource(Native):
    def __init__(self, threads: Threads, version: bytes) -> None:
        super().__init__()
        self._threads = threads
        self._version = version.decode("ascii")

    async def answer(self, request: Request) -> None:
        token = credentials(request, TOKEN_SCHEME)
        offered = request.requestHeaders.getRawHeaders(b"accept-encoding", [])
        is_zstd = accepts_zstd(b",".join(offered).decode("latin-1"))
        body = await self._threads.call(read, token, self._version, is_zstd)
        etag = f'W/"{self._version}"'
        request.setHeader("ETag", etag)
        request.setHeader("Vary", "Accept-Encoding, Authorization")
        request.setHeader("Cache-Control", "private, max-age=31536000, immutable")
        if etag in (request.getHeader("if-none-match") or ""):
            respond(request, b"", status=304)
            return
        if is_zstd:
            request.setHeader("Content-Encoding", "zstd")
        respond(request, body)


def read(token: str, version: str, is_zstd: bool) -> bytes:
    """The answer as it goes over the wire, in a thread. Raises Unauthorized,
    UnknownExpressionSet."""
    authenticated(token)
    return _body(version, is_zstd)


@functools.lru_cache(maxsize=MAX_KEPT)
def _body(version: str, is_zstd: bool) -> bytes:
    body = dump(expression_sets.definitions(version))
    return zstandard.compress(body, ZSTD_LEVEL) if is_zstd else body
