"""GET /api/v1/partitions/{id}/nodes: the documents of a partition, for workers."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import zstandard

from api import metrics
from api.problems import UnknownField
from api.protocol import authenticated
from api.server.batchcache import BatchCache
from api.server.http import Request
from api.server.native import Native, credentials, respond
from api.server.operations import WORKERS, Answer, Content, Operation, Parameter
from api.server.threads import Threads
from tagmill.errors import Invalid, NotFound
from tagmill.fleet import batches
from tagmill.work import workers
from tagmill_wire.messages import TOKEN_SCHEME, Batch, dump
from tagmill_wire.pagehead import EMPTY, NEXT, REV, PageHead

# On 4 MB of generated documents level 3 makes 56:1 at 0.5 ms a MB, level 1 39:1 at 0.6 ms.
ZSTD_LEVEL = 3

# Whoever stores an answer must not show it to others, and asks whether it is still right.
CACHED = {
    "ETag": "Of this rev and these parameters; `If-None-Match` takes it.",
    "Vary": "`Accept-Encoding, Authorization`",
    "Cache-Control": "`private, no-cache`",
}
OPERATION = Operation(
    name="partitions_nodes",
    method="get",
    path="/api/v1/partitions/{partition}/nodes",
    tag="worker protocol",
    schemes=WORKERS,
    summary="Read a partition's documents",
    errors=("invalid", "incarnation_changed"),
    description="One page of a partition's documents: see docs/protocol.md. What exceeds the "
    "server's maxima is brought down to them.",
    parameters=(
        Parameter(
            "incarnation", "The lease's.", {"type": "string", "format": "uuid"}, is_required=True
        ),
        *(
            Parameter(name, text, {"type": "integer", "minimum": 0})
            for name, text in (
                ("since", "What has changed after this rev, tombstones included."),
                ("after", "The page after this slot."),
                ("max_nodes", "The most nodes."),
                ("max_bytes", "The most bytes of XML, but always one node."),
            )
        ),
        Parameter("Accept-Encoding", "`zstd` packs the page.", place="header"),
        Parameter("If-None-Match", "304 where this is the `ETag`.", place="header"),
    ),
    answers={
        200: Answer(
            "The page, packed where zstd is accepted.",
            Content.of(Batch),
            {
                REV: "The partition's rev.",
                NEXT: "The `after` of the following page; the last one lacks it.",
                EMPTY: "`true`: no nodes at all.",
                "Content-Encoding": "`zstd`, where it is packed.",
                **CACHED,
            },
        ),
        304: Answer("The client has it.", headers=CACHED),
    },
)


@dataclass(frozen=True)
class Slice:
    """What of a partition is asked for: the query parameters, within the server's limits. `since`
    and the rev of the answer are of that incarnation of the database."""

    incarnation: str
    since: int | None
    after: int | None
    max_nodes: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch as it goes over the wire."""

    head: PageHead
    body: bytes

    def __len__(self) -> int:
        return len(self.body)


class BatchResource(Native):
    # After the token.
    parameters = None

    def __init__(
        self, threads: Threads, cache: BatchCache[Encoded], limits: Slice, partition: bytes
    ) -> None:
        super().__init__()
        self._threads = threads
        self._cache = cache
        self._limits = limits
        self._partition = int(partition)

    async def answer(self, request: Request) -> None:
        token = credentials(request, TOKEN_SCHEME)
        part = slice_of(request, self._limits)
        # A client may send the header in several lines: together they are one list.
        offered = request.requestHeaders.getRawHeaders(b"accept-encoding", [])
        is_zstd = accepts_zstd(b",".join(offered).decode("latin-1"))
        # Two calls: only in between, on the reactor thread, can the cache be asked.
        rev = await self._threads.call(readable_revision, token, self._partition, part)
        key = (self._partition, rev, part, is_zstd)
        etag = 'W/"' + hashlib.blake2b(repr(key).encode(), digest_size=12).hexdigest() + '"'
        request.setHeader("ETag", etag)
        request.setHeader("Vary", "Accept-Encoding, Authorization")
        request.setHeader("Cache-Control", "private, no-cache")
        if etag in (request.getHeader("if-none-match") or ""):
            respond(request, b"", status=304)
            return
        found = await self._cache.get(
            key, lambda: self._threads.call(read, self._partition, part, is_zstd)
        )
        metrics.BATCH_BYTES.observe(len(found))
        for name, value in found.head.headers().items():
            request.setHeader(name, value)
        if is_zstd:
            request.setHeader("Content-Encoding", "zstd")
        respond(request, found.body)


def readable_revision(token: str, partition: int, part: Slice) -> int:
    """The partition's rev, read in a thread. Raises NotFound, also where the token must not look,
    and IncarnationChanged."""
    if not workers.may_read(authenticated(token), partition):
        raise NotFound(f"no partition {partition}")
    return batches.revision_in(part.incarnation, partition, part.since)


def read(partition: int, part: Slice, is_zstd: bool) -> Encoded:
    """One batch as it goes over the wire, read in a thread."""
    wanted = asdict(part)
    batch = batches.read_in(wanted.pop("incarnation"), partition, **wanted)
    body = dump(batch)
    return Encoded(PageHead.of(batch), zstandard.compress(body, ZSTD_LEVEL) if is_zstd else body)


def slice_of(request: Request, limits: Slice) -> Slice:
    """Raises Invalid. What exceeds a limit is brought down to it."""
    given = {name.decode("ascii", "replace"): values[-1] for name, values in request.args.items()}
    unknown = given.keys() - asdict(limits).keys()
    if unknown:
        name = min(unknown)
        raise UnknownField(f"unknown parameter {name!r}", field=name)
    named = given.pop("incarnation", b"").decode("latin-1")
    numbers = {name: _number(name, value) for name, value in given.items()}
    return Slice(
        incarnation=named,
        since=numbers.get("since"),
        after=numbers.get("after"),
        max_nodes=max(1, min(numbers.get("max_nodes", limits.max_nodes), limits.max_nodes)),
        max_bytes=max(1, min(numbers.get("max_bytes", limits.max_bytes), limits.max_bytes)),
    )


def _number(name: str, value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:  # noqa: PLR2004 - bigint
        raise Invalid("must be a whole number, 0 or more", field=name)
    return int(value)


def accepts_zstd(header: str) -> bool:
    """Whether Accept-Encoding names zstd, with a weight that is not 0."""
    for item in header.lower().split(","):
        coding, _, weight = item.partition(";")
        if coding.strip() == "zstd":
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
