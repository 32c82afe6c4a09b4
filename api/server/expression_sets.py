"""GET /api/v1/expression-sets/{version}: the definitions that leases name by their version."""

from __future__ import annotations

import functools

from api.protocol import authenticated
from api.server import versioned
from api.server.http import Request
from api.server.native import Native, credentials
from api.server.operations import WORKERS, Answer, Content, Operation
from api.server.threads import Threads
from tagmill.matches import expression_sets
from tagmill_wire.messages import TOKEN_SCHEME, ExpressionSet, dump

# Answers that are kept as they go over the wire: every worker asks for the same.
MAX_KEPT = 8

CACHED = versioned.described("Of this version", versioned.IMMUTABLE)
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
    parameters=versioned.PARAMETERS,
    answers={
        200: Answer(
            "The definitions, packed where zstd is accepted.",
            Content.of(ExpressionSet),
            {**versioned.PACKED, **CACHED},
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
        is_zstd = versioned.takes_zstd(request)
        body = await self._threads.call(read, token, self._version, is_zstd)
        if not versioned.is_current(request, f'W/"{self._version}"', versioned.IMMUTABLE):
            versioned.send(request, body, is_zstd)


def read(token: str, version: str, is_zstd: bool) -> bytes:
    """The answer as it goes over the wire, in a thread. Raises Unauthorized,
    UnknownExpressionSet."""
    authenticated(token)
    return _body(version, is_zstd)


@functools.lru_cache(maxsize=MAX_KEPT)
def _body(version: str, is_zstd: bool) -> bytes:
    return versioned.packed(dump(expression_sets.definitions(version)), is_zstd)
