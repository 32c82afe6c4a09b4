"""GET /api/v1/expression-sets/{version}: the definitions that leases name by their version."""

from __future__ import annotations

from functools import partial

from api.cache import Asked, Bodies, Entry, Name
from api.cache.controls import State, state
from api.cache.keyspaces import EXPRESSION_SETS
from api.protocol import authenticated
from api.server import versioned
from api.server.http import Request
from api.server.native import Native, credentials
from api.server.operations import WORKERS, Answer, Content, Operation
from api.server.threads import Threads
from tagmill.matches import expression_sets
from tagmill_wire.messages import TOKEN_SCHEME, ExpressionSet, dump

CACHED = versioned.described("The tag of this version", versioned.IMMUTABLE)
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
    def __init__(self, threads: Threads, bodies: Bodies, version: bytes) -> None:
        super().__init__()
        self._threads = threads
        self._bodies = bodies
        self._version = version.decode("ascii")

    async def answer(self, request: Request) -> None:
        token = credentials(request, TOKEN_SCHEME)
        kept = await self._threads.call(admitted, token)
        # A version is a digest of what it stands for.
        name = Name(EXPRESSION_SETS.name, self._version, "", str(kept.generation))
        coding = versioned.coding_of(request)
        found = await self._bodies.get(
            Asked(name, coding, is_off=kept.is_off), partial(read, self._version), self._threads
        )
        if not versioned.is_current(request, f'W/"{self._version}"', versioned.IMMUTABLE):
            versioned.send(request, found, coding)


def admitted(token: str) -> State:
    """What was asked of the cache, in a thread. Raises Unauthorized."""
    authenticated(token)
    return state(EXPRESSION_SETS.name)


def read(version: str) -> Entry:
    """The answer, in a thread. Raises UnknownExpressionSet."""
    return Entry.of(dump(expression_sets.definitions(version)))
