"""POST of /api/v1/nodes/import, update and delete: lines of any number in constant memory.

The request's body goes to an importer thread while it arrives; when the thread falls behind, the
client's socket is no longer read. Verdicts go to a spooled file, and to the client when the body
has ended: clients do not read before they have sent everything, and proxies as nginx send no more
of a body once its answer has begun. The token is checked before the body is read.
"""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from twisted.internet.defer import Deferred
from twisted.protocols.basic import FileSender
from twisted.python.failure import Failure

from api.imports import answers
from api.packing import GZIP, unpack
from api.rights import Scope
from api.roles import Role
from api.server import users
from api.server.http import Request, route_of
from api.server.native import Native, refuse_strange, shown
from api.server.operations import BINARY, USERS, Answer, Content, Operation
from api.server.threads import Threads
from api.strict import refuse_type
from tagmill.errors import TagmillError
from tagmill.flows import imports
from tagmill.flows.imports import Bulk

NDJSON = "application/x-ndjson"
# Some clients that are generated know no other type for a body that is sent as it is.
BYTES = "application/octet-stream"
# Bytes between the socket and the importer: enough to keep it busy over a slow round trip.
MAX_PENDING = 1024 * 1024
# What is read from the socket at once, where Twisted takes 64 KiB: each time costs as much as half
# a line of 20 kB does.
READ_BYTES = 256 * 1024
SPOOL_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Kind:
    """What is done with the lines, and the role that it takes."""

    bulk: Bulk
    role: Role
    operation: Operation


def _operation(name: str, summary: str, description: str, line: str, found: str) -> Operation:
    return Operation(
        name=f"nodes_{name}",
        method="post",
        path=f"/api/v1/nodes/{name}",
        tag="nodes",
        # A form on another site could send a body of lines with a browser's session.
        schemes=USERS,
        summary=summary,
        description=f"{description} Each is answered by a line with `line`, `system_id`, `outcome`,"
        ' and `error` where it is refused; the last line is `{"summary": {...}}`. Good lines are '
        "done, bad ones are refused each for itself. Verdicts come when the body has ended; "
        "without a summary it was cut short.",
        request=Content(NDJSON, BINARY, line + "\n", (BYTES,)),
        answers={
            200: Answer(
                "A verdict for each line that is not blank, and a summary.",
                Content(NDJSON, BINARY, found + "\n", (BYTES,)),
            )
        },
    )


IMPORT = Kind(
    imports.IMPORT,
    Role.UPLOADER,
    _operation(
        "import",
        "Import nodes",
        "Bulk upload, of any size. Each line is an object: `system_id`, and optionally `cluster`, "
        "`hostname`, `kind` and `probes` (XML by the name of the probe, as `lshw`; null deletes "
        "it).",
        '{"system_id": "4y3h7n", "cluster": "north", "probes": {"lshw": "<list>...</list>"}}',
        '{"line": 1, "system_id": "4y3h7n", "outcome": "created", "rev": 12}\n'
        '{"summary": {"lines": 1, "created": 1, "updated": 0, "unchanged": 0, "refused": 0}}',
    ),
)
UPDATE = Kind(
    imports.UPDATE,
    Role.UPLOADER,
    _operation(
        "update",
        "Change nodes",
        "As PATCH of each node, for any number. Each line is an object: `system_id`, and of "
        "`cluster`, `hostname` and `kind` what is to change. No node is made.",
        '{"system_id": "4y3h7n", "hostname": "rack1-node8"}',
        '{"line": 1, "system_id": "4y3h7n", "outcome": "updated", "rev": 12}\n'
        '{"summary": {"lines": 1, "updated": 1, "unchanged": 0, "refused": 0}}',
    ),
)
DELETE = Kind(
    imports.DELETE,
    Role.OPERATOR,
    _operation(
        "delete",
        "Delete nodes",
        "As DELETE of each node, for any number. Each line is an object with its `system_id`.",
        '{"system_id": "4y3h7n"}',
        '{"line": 1, "system_id": "4y3h7n", "outcome": "deleted"}\n'
        '{"summary": {"lines": 1, "deleted": 1, "refused": 0}}',
    ),
)
KINDS = (IMPORT, UPDATE, DELETE)


def kind_of(path: bytes) -> Kind | None:
    """What is done with lines that are posted to the path."""
    return next((kind for kind in KINDS if kind.operation.pattern.fullmatch(path)), None)


class Import:
    """One import. `_run` is the importer thread's, `_lines` that of a thread which the importer
    starts, the rest is the reactor's."""

    def __init__(
        self, request: Request, kind: Kind, checks: Threads, importers: Threads, line_bytes: int
    ) -> None:
        self._reactor: Any = request.site.reactor
        self._request = request
        self._bulk = kind.bulk
        self._importers = importers
        self._line_bytes = line_bytes
        self._chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._pending = 0
        self._is_admitted = False
        self._is_complete = False
        self._is_lost = False
        self.verdicts: Deferred[IO[bytes]] = Deferred()
        self._expects = request.requestHeaders.hasHeader(b"expect")
        # Twisted would ask for the body at once.
        request.requestHeaders.removeHeader(b"expect")
        self._pause()
        header = request.getHeader("authorization") or ""
        checks.call(users.scope, kind.role, header).addCallbacks(self._admitted, self._failed)

    def feed(self, data: bytes) -> None:
        self._chunks.put(data)
        self._pending += len(data)
        if self._pending > MAX_PENDING or not self._is_admitted:
            self._pause()

    def end(self) -> None:
        self._is_complete = True
        self._chunks.put(None)

    def lost(self) -> None:
        """The client has gone: what arrived whole is stored, a cut line is not."""
        self._is_lost = True
        self._chunks.put(None)

    def _admitted(self, scope: Scope) -> None:
        try:
            refuse_strange(self._request, frozenset(), codings=(GZIP,))
            refuse_type(self._request.getHeader("content-type"), NDJSON, BYTES)
        except TagmillError as error:
            self._failed(Failure(error))
            return
        self._is_admitted = True
        if self._request.channel is not None:
            self._request.channel.transport.bufferSize = READ_BYTES
        if self._expects and not self._request.body_ended:
            self._request.channel._send100Continue()
        self._resume()
        self._importers.call(self._run, scope).addCallbacks(self._finished, self._failed)

    def _finished(self, file: IO[bytes]) -> None:
        if self._is_lost:
            file.close()
        else:
            self.verdicts.callback(file)

    def _failed(self, failure: Failure) -> None:
        """Before or in the middle of the body: answer now, and let the rest of the body pass."""
        # Nobody waits for lines any more.
        self._chunks.put(None)
        error = shown(failure.value, self._request)
        if self._is_lost:
            return
        if self._request.body_ended:
            self.verdicts.errback(error)
        else:
            self._request.fail(error)
            self._resume()

    def _run(self, scope: Scope) -> IO[bytes]:
        file = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - closed by who sends it
        spool(answers(self._lines(), self._bulk, scope.guarded), file)
        return file

    def _lines(self) -> Iterator[bytes]:
        """The lines of the body. One that is too long is cut just above the limit: the importer
        refuses it, and nobody holds it."""
        line = bytearray()
        is_packed = (self._request.getHeader("content-encoding") or "").strip().lower() == GZIP
        for chunk in unpack(self._arriving()) if is_packed else self._arriving():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                if line or len(part) > self._line_bytes:
                    self._extend(line, part)
                    yield bytes(line)
                    line.clear()
                else:
                    yield part
            self._extend(line, rest)
        if line and not self._is_lost:
            yield bytes(line)

    def _arriving(self) -> Iterator[bytes]:
        consumed = 0
        while (chunk := self._chunks.get()) is not None:
            consumed += len(chunk)
            # The reactor is woken for much, and where there is nothing else to do.
            if consumed >= MAX_PENDING // 4 or self._chunks.empty():
                self._reactor.callFromThread(self._consumed, consumed)
                consumed = 0
            yield chunk

    def _extend(self, line: bytearray, part: bytes) -> None:
        line += part[: max(0, self._line_bytes + 1 - len(line))]

    def _consumed(self, size: int) -> None:
        self._pending -= size
        if self._pending <= MAX_PENDING // 2:
            self._resume()

    def _pause(self) -> None:
        if self._request.channel is not None and not self._is_lost:
            self._request.channel.hold()

    def _resume(self) -> None:
        channel = self._request.channel
        if channel is not None and not self._is_lost and not self._request.body_ended:
            channel.release()


def spool(found: Iterable[bytes], file: IO[bytes]) -> None:
    """Write them one by one: a spooled file looks at its size after each call only."""
    for answer in found:
        file.write(answer)


class ImportResource(Native):
    """Sends the verdicts once the body has ended; `Import` did the rest before. A node may have the
    name `import`, too, or those of the others: GET, PUT, PATCH and DELETE are about that one, and
    Django's to answer."""

    methods = ("POST",)
    # `Import` looks at them, after the token.
    parameters = None

    def __init__(self, fallback: Any) -> None:
        super().__init__()
        self._fallback = fallback

    def render(self, request: Request) -> Any:
        if request.method in (b"POST", b"OPTIONS"):
            return super().render(request)
        request.route = route_of(request.path)
        return self._fallback.render(request)

    def refuse(self, request: Request) -> None:
        """Raises as `Import` did before."""
        refuse_strange(request, self.parameters, codings=(GZIP,))

    async def answer(self, request: Request) -> None:
        running = request.intake
        assert isinstance(running, Import)  # noqa: S101 - the site made it for this path
        file = await running.verdicts
        with file:
            size = file.tell()
            file.seek(0)
            takes_bytes = BYTES in (request.getHeader("accept") or "")
            request.setHeader("Content-Type", BYTES if takes_bytes else NDJSON)
            request.setHeader("Content-Length", str(size))
            await FileSender().beginFileTransfer(file, request)
        request.finish()
