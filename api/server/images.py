"""/api/v1/partitions/{id}/images/{name}: images of partitions that workers share.

The image store may be far away, or hang: its threads are its own. An answer is read from it in
parts, no faster than the client takes them.
"""

from __future__ import annotations

import contextlib
import re
from typing import IO, Any, ClassVar

from twisted.internet.defer import Deferred

from api import metrics
from api.problems import RangeNotSatisfiable
from api.protocol import authenticated
from api.server.http import Request
from api.server.native import Native, credentials, respond
from api.server.operations import WORKERS, Answer, Content, Operation, Parameter
from api.server.threads import Threads
from api.strict import refuse_type
from tagmill.errors import ImageMissing, Invalid, NotFound
from tagmill.fleet import images
from tagmill.fleet.images import Name
from tagmill.fleet.models import SharedImage
from tagmill.work import workers
from tagmill_wire.images import IMAGE, MEDIA_TYPE, NEWEST, SCHEMA
from tagmill_wire.messages import TOKEN_SCHEME

PART_BYTES = 2 * 1024 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

FOUND = {
    IMAGE: "The image's name: incarnation, rev, schema and digest.",
    "ETag": "The digest: BLAKE2b of all bytes. `If-None-Match` and `If-Range` take it.",
    "Accept-Ranges": "`bytes`",
    "Cache-Control": "`private, no-cache`",
}
_BYTES = Content(MEDIA_TYPE, {"type": "string", "format": "binary"})
_PATH = "/api/v1/partitions/{partition}/images/{image}"
_ASKED = (
    Parameter(
        "incarnation",
        "With `newest`: the incarnation that the lease names.",
        {"type": "string", "format": "uuid"},
    ),
    Parameter(
        "schema",
        "With `newest`: the schema, which says what made it.",
        {"type": "string", "pattern": f"^{SCHEMA}$"},
    ),
)
GET = Operation(
    name="partitions_images_read",
    summary="Read a shared image",
    method="get",
    path=_PATH,
    tag="worker protocol",
    schemes=WORKERS,
    description="An image of the partition that a worker shared, by its name, or the `newest` of "
    "an incarnation and schema; 404 with `image_missing` where there is none: docs/protocol.md.",
    parameters=(
        *_ASKED,
        Parameter("Range", "`bytes=a-b`: one range.", place="header"),
        Parameter("If-Range", "The whole image unless this is the `ETag`.", place="header"),
        Parameter("If-None-Match", "304 where this is the `ETag`.", place="header"),
    ),
    answers={
        200: Answer("The image.", _BYTES, FOUND),
        206: Answer("A part.", _BYTES, {**FOUND, "Content-Range": "Which, and of how much."}),
        304: Answer("The client has it.", headers=FOUND),
    },
    errors=(
        "invalid",
        "images_off",
        "image_missing",
        "range_not_satisfiable",
        "images_unavailable",
    ),
)
PUT = Operation(
    name="partitions_images_update",
    summary="Share an image",
    method="put",
    path=_PATH,
    tag="worker protocol",
    schemes=WORKERS,
    description="Share an image of the partition. Its name has the digest of the body. The newest "
    "of each schema is kept; one that is no newer than that is `superseded`, and not stored.",
    request=_BYTES,
    answers={
        200: Answer(
            "What came of it.",
            Content(
                "application/json",
                {
                    "type": "object",
                    "required": ["outcome"],
                    "properties": {"outcome": {"type": "string", "enum": ["stored", "superseded"]}},
                },
            ),
        )
    },
    errors=("invalid", "images_off", "image_store_full", "images_unavailable"),
)


class ImageResource(Native):
    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "PUT")
    parameters = frozenset({"incarnation", "schema"})

    def __init__(self, threads: Threads, partition: bytes, name: bytes) -> None:
        super().__init__()
        self._threads = threads
        self._partition = int(partition)
        self._name = name.decode("ascii")

    async def answer(self, request: Request) -> None:
        token = credentials(request, TOKEN_SCHEME)
        if request.method == b"PUT":
            await self._put(request, token)
            return
        asked = {key: request.args.get(key.encode(), [b""])[-1] for key in self.parameters}
        texts = {key: value.decode("latin-1") for key, value in asked.items()}
        try:
            found = await self._threads.call(find, token, self._partition, self._name, texts)
        except ImageMissing:
            metrics.IMAGES.labels("miss").inc()
            raise
        etag = f'"{found.digest}"'
        request.setHeader("ETag", etag)
        request.setHeader(IMAGE, str(images.name_of(found)))
        request.setHeader("Accept-Ranges", "bytes")
        request.setHeader("Cache-Control", "private, no-cache")
        if etag in (request.getHeader("if-none-match") or ""):
            respond(request, b"", status=304)
            return
        begin, end = 0, found.size
        condition = request.getHeader("if-range")
        if condition is None or condition == etag:
            begin, end = part_of(request.getHeader("range"), found.size)
        if end - begin < found.size:
            request.setResponseCode(206)
            request.setHeader("Content-Range", f"bytes {begin}-{end - 1}/{found.size}")
        request.setHeader("Content-Type", MEDIA_TYPE)
        if request.method == b"HEAD":
            request.setHeader("Content-Length", str(end - begin))
            request.finish()
            return
        await self._send(request, found, begin, end)

    async def _send(self, request: Request, found: SharedImage, begin: int, end: int) -> None:
        try:
            file = await self._threads.call(images.opened, found)
        except ImageMissing:
            metrics.IMAGES.labels("miss").inc()
            raise
        metrics.IMAGES.labels("hit").inc()
        request.setHeader("Content-Length", str(end - begin))
        try:
            await Sending(request, self._threads, file).send(begin, end)
        finally:
            file.close()
        request.finish()

    async def _put(self, request: Request, token: str) -> None:
        given = request.getHeader("content-type")
        length = int(request.getHeader("content-length") or 0)
        stored = await self._threads.call(
            put, (token, self._partition, self._name), given, request.content, length
        )
        outcome = "stored" if stored else "superseded"
        metrics.IMAGES.labels(outcome).inc()
        respond(request, b'{"outcome": "%s"}' % outcome.encode())


class Sending:
    """A file's bytes on their way to a client: a push producer, of one part at a time."""

    def __init__(self, request: Request, threads: Threads, file: IO[bytes]) -> None:
        self._request = request
        self._threads = threads
        self._file = file
        self._taken: Deferred[None] | None = None

    async def send(self, begin: int, end: int) -> None:
        """Raises OSError where the file is shorter: then the answer is cut off."""
        # Away from the client a paused producer is never resumed, and the request cancels this.
        self._request.registerProducer(self, True)
        try:
            while begin < end:
                part = await self._threads.call(self._read, begin, min(PART_BYTES, end - begin))
                if not part:
                    raise OSError("the image became shorter while it was read")
                begin += len(part)
                self._request.write(part)
                if self._taken is not None:
                    await self._taken
        finally:
            with contextlib.suppress(Exception):
                self._request.unregisterProducer()

    def _read(self, begin: int, size: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(size)

    def pauseProducing(self) -> None:
        if self._taken is None:
            self._taken = Deferred()

    def resumeProducing(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.callback(None)

    def stopProducing(self) -> None:
        """The client has gone; so has the request."""


def find(token: str, partition: int, name: str, asked: dict[str, str]) -> SharedImage:
    """In a thread. Raises NotFound, also where the token must not look, and as `images` does."""
    _check(token, partition)
    if name == NEWEST:
        if not asked["incarnation"]:
            raise Invalid("name the incarnation that the lease is of", field="incarnation")
        return images.newest(partition, asked["incarnation"], asked["schema"])
    return images.named(partition, Name.read(name))


def put(asked: tuple[str, int, str], content_type: str | None, body: Any, size: int) -> bool:
    """In a thread: whether it was stored. Raises as `find`, and UnsupportedMedia."""
    token, partition, name = asked
    _check(token, partition)
    refuse_type(content_type, MEDIA_TYPE)
    return images.store(partition, Name.read(name), body, size)


def _check(token: str, partition: int) -> None:
    if not workers.may_read(authenticated(token), partition):
        raise NotFound(f"no partition {partition}")


def part_of(header: str | None, size: int) -> tuple[int, int]:
    """The first byte, and the one after the last. Whatever is not one range of bytes is passed
    over, as RFC 9110 wants it. Raises RangeNotSatisfiable."""
    found = _RANGE.fullmatch(header or "")
    if found is None or found[0] == "bytes=-":
        return 0, size
    first, last = found.groups()
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < begin:
            return 0, size
    if begin >= end:
        raise RangeNotSatisfiable(f"the image has {size} bytes", size)
    return begin, end
