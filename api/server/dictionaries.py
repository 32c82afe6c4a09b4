"""GET /api/v1/partitions/{partition}/dictionaries/{dictionary}: what the documents of batches are
packed with."""

from __future__ import annotations

from functools import partial

from api.cache import Asked, Bodies, Entry, Name
from api.cache.controls import State, state
from api.cache.keyspaces import DICTIONARIES
from api.protocol import authenticated
from api.server import versioned
from api.server.http import Request
from api.server.native import Native, credentials
from api.server.operations import BINARY, WORKERS, Answer, Content, Operation
from api.server.threads import Threads
from tagmill.errors import NotFound
from tagmill.fleet import batches
from tagmill.work import workers
from tagmill_wire.messages import TOKEN_SCHEME

BYTES = "application/octet-stream"
CACHED = versioned.described("Of this dictionary", versioned.IMMUTABLE)
# Nearly all that could be packed in it is.
LEVEL = 1
OPERATION = Operation(
    name="partitions_dictionaries",
    method="get",
    path="/api/v1/partitions/{partition}/dictionaries/{dictionary}",
    tag="worker protocol",
    schemes=WORKERS,
    summary="Read a dictionary",
    description="A dictionary that a page of the partition names: see docs/protocol.md. It never "
    "changes. 404 where the partition's cluster has none with this id.",
    parameters=versioned.PARAMETERS,
    answers={
        200: Answer(
            "The dictionary, packed where zstd is accepted.",
            Content(BYTES, BINARY),
            {**versioned.PACKED, **CACHED},
        ),
        304: Answer("The client has it.", headers=CACHED),
    },
)


class DictionaryResource(Native):
    def __init__(
        self, threads: Threads, bodies: Bodies, partition: bytes, dictionary: bytes
    ) -> None:
        super().__init__()
        self._threads = threads
        self._bodies = bodies
        self._partition = int(partition)
        self._dictionary = int(dictionary)

    async def answer(self, request: Request) -> None:
        token = credentials(request, TOKEN_SCHEME)
        kept = await self._threads.call(admitted, token, self._partition)
        # An id is made of the content. The partition says who may read it.
        name = Name(
            DICTIONARIES.name, str(self._partition), str(self._dictionary), str(kept.generation)
        )
        coding = versioned.coding_of(request)
        found = await self._bodies.get(
            Asked(name, coding, is_off=kept.is_off),
            partial(read, self._partition, self._dictionary),
            self._threads,
        )
        if not versioned.is_current(request, f'W/"{self._dictionary}"', versioned.IMMUTABLE):
            versioned.send(request, found, coding, BYTES)


def admitted(token: str, partition: int) -> State:
    """What was asked of the cache, in a thread. Raises NotFound, also where the token must not
    look."""
    if not workers.may_read(authenticated(token), partition):
        raise NotFound(f"no partition {partition}")
    return state(DICTIONARIES.name, partition=partition)


def read(partition: int, dictionary: int) -> Entry:
    """The answer, in a thread. Raises NotFound."""
    return Entry.of(batches.dictionary(partition, dictionary), level=LEVEL)
