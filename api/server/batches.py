"""GET /api/v1/partitions/{id}/nodes: the documents of a partition, for workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from api import metrics
from api.cache import Asked, Bodies, Built, Entry, Name, controls
from api.cache.bodies import built
from api.cache.keyspaces import BATCHES
from api.problems import UnknownField
from api.protocol import wrong_token
from api.server import versioned
from api.server.http import Request
from api.server.native import Native, credentials
from api.server.operations import WORKERS, Answer, Content, Operation, Parameter
from api.server.threads import Threads
from tagmill import sql
from tagmill.errors import Invalid, NotFound
from tagmill.fleet import batches
from tagmill.fleet.batches import Revision
from tagmill.work import workers
from tagmill_wire import frames
from tagmill_wire.messages import TOKEN_SCHEME, Batch, dump
from tagmill_wire.pagehead import EMPTY, NEXT, REV, PageHead

CONTENT_TYPE = "Content-Type"
# The documents are packed already; the dictionary is not.
PACKED_LEVEL = 1
VARY = f"Accept, {versioned.VARY}"
CACHED = {
    **versioned.described("The tag of this rev and these parameters", versioned.REVALIDATED),
    "Vary": f"`{VARY}`",
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
    "server's maxima is brought down to them. Where `Accept` names `application/vnd.tagmill.batch` "
    "the page may come in that form, with documents as they are at rest; with "
    "`dictionaries=named` it names the dictionaries that it would bring along.",
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
        Parameter("Accept", "`application/vnd.tagmill.batch` takes that, too.", place="header"),
        *versioned.PARAMETERS,
    ),
    answers={
        200: Answer(
            "The page, packed where zstd is accepted.",
            Content.of(Batch),
            {
                REV: "The partition's rev.",
                NEXT: "The `after` of the following page; the last one lacks it.",
                EMPTY: "`true`: no nodes at all.",
                frames.DICTIONARIES: "The dictionaries that the page needs and does not bring.",
                **versioned.PACKED,
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


@dataclass(frozen=True)
class Question:
    """What a worker asks for. `form`: how it takes documents, as of `form_of`; `known`: the entity
    tags of what it has."""

    token: str
    partition: int
    part: Slice
    form: str
    known: str | None


class Looked(NamedTuple):
    """`page`: read already, where nobody seemed to have built it."""

    name: Name
    is_off: bool
    page: Built | None


class _Row(NamedTuple):
    known_as: str
    digest: bytes
    is_revoked: bool
    may_read: bool
    incarnation: str | None
    rev: int | None
    generation: int
    is_off: bool


class BatchResource(Native):
    # After the token.
    parameters = None

    def __init__(self, threads: Threads, bodies: Bodies, limits: Slice, partition: bytes) -> None:
        super().__init__()
        self._threads = threads
        self._bodies = bodies
        self._limits = limits
        self._partition = int(partition)

    async def answer(self, request: Request) -> None:
        asked = Question(
            credentials(request, TOKEN_SCHEME),
            self._partition,
            slice_of(request, self._limits),
            form_of(request.joined("accept") or ""),
            request.joined("if-none-match"),
        )
        looked = await self._threads.call(look, asked, self._bodies.may_have)
        etag = versioned.etag_of(looked.name)
        if versioned.is_current(request, etag, versioned.REVALIDATED, VARY):
            return
        coding = versioned.coding_of(request)
        found = await self._bodies.get(
            Asked(looked.name, coding, is_off=looked.is_off),
            looked.page or partial(read, asked.partition, asked.part, asked.form),
            self._threads,
        )
        metrics.BATCH_BYTES.observe(len(found.body))
        kind = versioned.JSON
        for header, value in found.headers:
            if header == CONTENT_TYPE:
                kind = value
            else:
                request.setHeader(header, value)
        versioned.send(request, found, coding, kind)


def look(asked: Question, may_be_kept: Callable[[Name], bool]) -> Looked:
    """The body's name, and the body where it has to be read, in a thread. Raises Unauthorized,
    IncarnationChanged, Invalid, and NotFound, also where the token must not look."""
    partition, part = asked.partition, asked.part
    row = _readable(asked)
    now = Revision(row.incarnation, row.rev)
    rev = batches.check(part.incarnation, partition, part.since, now)
    variant = repr((part, asked.form))
    name = Name(BATCHES.name, str(partition), variant, f"{row.generation}:{rev}")
    if versioned.is_named(versioned.etag_of(name), asked.known) or (
        not row.is_off and may_be_kept(name)
    ):
        return Looked(name, row.is_off, None)
    page = built(partial(read, partition, part, asked.form))
    return Looked(name, row.is_off, page)


def _readable(asked: Question) -> _Row:
    """Raises Unauthorized, NotFound."""
    given = workers.presented(asked.token)
    row = None
    if given is not None:
        values = {
            "lookup": given.lookup,
            "partition": asked.partition,
            "scopes": controls.scopes_of(BATCHES.name, partition=asked.partition),
        }
        row = next(iter(sql.bound(_Row, controls.QUERIES, "look_at_partition", values)), None)
        if row is None:
            workers.is_good(given, None)
        elif not workers.is_good(given, row.digest, row.known_as, is_revoked=row.is_revoked):
            row = None
    if row is None:
        raise wrong_token()
    if not row.may_read:
        raise NotFound(f"no partition {asked.partition}")
    return row


def form_of(accept: str) -> str:
    """How the client takes documents: the media type, of those that are known here, that asks for
    the least work."""
    packed = [item for item in accept.split(",") if frames.MEDIA_TYPE in item]
    if any(frames.NAMED in item for item in packed):
        return frames.NAMED_TYPE
    return frames.MEDIA_TYPE if packed else versioned.JSON


def read(partition: int, part: Slice, form: str) -> Entry:
    """One batch, read in a thread. It may hold newer documents than it claims: those of a rev that
    comes only once. `form`: as of `form_of`."""
    wanted = asdict(part)
    read = batches.read_in if form == versioned.JSON else batches.packed_in
    batch = read(wanted.pop("incarnation"), partition, **wanted)
    headers = tuple(PageHead.of(batch).headers().items())
    if isinstance(batch, Batch):
        return Entry.of(dump(batch), headers)
    headers += ((CONTENT_TYPE, frames.MEDIA_TYPE),)
    if form == frames.NAMED_TYPE:
        headers += ((frames.DICTIONARIES, frames.names(batch.dictionaries)),)
        batch = frames.without_dictionaries(batch)
    return Entry.of(frames.dump(batch), headers, level=PACKED_LEVEL)


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
