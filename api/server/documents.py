"""PUT of /api/v1/nodes/{system_id}/document: uploads that arrive together are stored together.

Whoever may not upload is refused first, then what is not understood, then the document. Everything
else at this address is Django's to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote

from api import etags
from api.encoding import dumps
from api.etags import Condition
from api.handlers import NO_SUCH_PAGE
from api.limits import DOCUMENT
from api.packing import GZIP, unpacked
from api.rest.documents import LSHW
from api.rest.nodes import SETTLED, settled
from api.server import users
from api.server.grouping import Bounds, Grouping
from api.server.http import Request, route_of
from api.server.native import Native, body_of, refuse_strange, respond
from api.server.operations import (
    BINARY,
    BROWSERS,
    CONDITIONS,
    Answer,
    Content,
    Operation,
    Parameter,
)
from api.server.threads import Threads
from api.strict import refuse_type
from tagmill.audit.acting import Actor, acting
from tagmill.config import MIB
from tagmill.errors import Invalid, NotFound, TagmillError
from tagmill.fleet.documents import PROBE
from tagmill.flows.ingest import Upload, Verdict
from tagmill.flows.together import store_all

# Some clients that are generated know no other type for a body that is sent as it is.
BYTES = "application/octet-stream"
XML = ("application/xml", "text/xml", BYTES)
# What goes together is one transaction: its locks last well under a second. What waits is less than
# what so many threads would hold.
BOUNDS = Bounds(
    group=64,
    group_bytes=4 * MIB,
    waiting=1024,
    waiting_bytes=64 * MIB,
    seconds=20.0,
    patience=0.05,
    linger=0.010,
    # What a group costs beside its uploads is a third of an upload then.
    enough=8,
)
PARAMETERS = frozenset({"probe", "cluster"})
# Characters of a cluster's name.
MAX_CLUSTER = 256
STORED = {
    "type": "object",
    "required": ["outcome", "rev", "settled"],
    "properties": {
        "outcome": {"type": "string", "enum": ["created", "updated", "unchanged"]},
        "rev": {"type": "integer"},
        "settled": {
            "type": ["boolean", "null"],
            "description": "Whether the node's tags are true already; false: workers look at it. "
            "null: nothing was stored, and its tags are as they were.",
        },
    },
}
HEADERS = {
    SETTLED: "Whether the node's tags are true; missing where nothing was stored.",
    "X-Request-Id": "The id of this request.",
    "ETag": "Names the document, for `If-Match` and `If-None-Match`.",
}
OPERATION = Operation(
    name="nodes_document_update",
    method="put",
    path="/api/v1/nodes/{system_id}/document",
    tag="nodes",
    schemes=BROWSERS,
    summary="Upload a node's document",
    errors=("invalid", "invalid_document", "csrf_failed", "busy"),
    description="The XML that one probe printed, stored as it is but for its XML declaration.",
    parameters=(
        Parameter(
            "probe",
            "lshw, lldp, ...",
            {"type": "string", "default": LSHW, "pattern": f"^{PROBE.pattern}$"},
        ),
        Parameter(
            "cluster",
            "Its name or uuid, as in a line of `nodes/import`: a node that does not exist is made "
            "there, and one that is elsewhere moves there.",
            {"type": "string", "maxLength": MAX_CLUSTER},
        ),
        *CONDITIONS,
    ),
    request=Content(XML[0], BINARY, "<list>...</list>", XML[1:]),
    answers={
        200: Answer("What came of it.", Content("application/json", STORED), HEADERS),
        201: Answer("The node was made.", Content("application/json", STORED), HEADERS),
    },
)


@dataclass(frozen=True)
class Put:
    """A request as the thread needs it: what belongs to the connection stays with the reactor."""

    credentials: users.Shown
    form: Any
    refuse: Callable[[], None]
    system_id: str
    probe: str
    cluster: str | None
    condition: Condition
    content_type: str | None
    body: bytes
    coding: str | None
    request_id: str


Uploads = Grouping[Put, Verdict]


def uploads(reactor: Any, threads: Threads) -> Uploads:
    """What all requests for documents share."""
    return Grouping(reactor, threads, put_all, BOUNDS)


class DocumentResource(Native):
    methods: ClassVar[tuple[str, ...]] = ("PUT",)

    def __init__(self, uploads: Uploads, django: Any, system_id: bytes) -> None:
        super().__init__()
        self._uploads = uploads
        self._django = django
        self._system_id = unquote(system_id.decode("latin-1"))

    def render(self, request: Request) -> Any:
        request.route = route_of(request.path)
        if request.method == b"PUT":
            return super().render(request)
        return self._django.render(request)

    def refuse(self, request: Request) -> None:
        """Nothing yet: the thread does, after the token."""

    async def answer(self, request: Request) -> None:
        asked = self._asked(request)
        verdict = await self._uploads.call(asked, len(asked.body))
        for name, value in settled(verdict.settled).items():
            request.setHeader(name, value)
        if asked.probe in verdict.digests:
            request.setHeader("ETag", etags.of_document(verdict.digests[asked.probe]))
        found = {"outcome": verdict.outcome, "rev": verdict.rev, "settled": verdict.settled}
        respond(request, dumps(found), status=201 if verdict.outcome == "created" else 200)

    def _asked(self, request: Request) -> Put:
        query = parse_qs(request.uri.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)
        credentials = users.shown_by(request)
        return Put(
            credentials=credentials,
            form=None if credentials[0] else users.form_of(request),
            refuse=lambda: refuse_strange(
                request, PARAMETERS, understands_conditions=True, codings=(GZIP,)
            ),
            system_id=self._system_id,
            probe=query.get("probe", [LSHW])[-1],
            cluster=query.get("cluster", [None])[-1],
            condition=etags.condition(request.joined),
            content_type=request.getHeader("content-type"),
            body=body_of(request),
            coding=request.getHeader("content-encoding"),
            request_id=request.request_id,
        )


def put_all(asked: Sequence[Put]) -> list[Verdict | BaseException]:
    """Store them, in a thread: for each its verdict, or what it is refused for."""
    known = users.uploaders(item.credentials for item in asked)
    found: dict[int, Verdict | BaseException] = {}
    wanted: dict[int, Upload] = {}
    for number, item in enumerate(asked):
        try:
            wanted[number] = _upload(item, known[item.credentials])
        except Exception as error:
            found[number] = error
    with acting(lambda: _actor(asked, known)):
        verdicts = store_all(list(wanted.values()))
    for number, verdict in zip(wanted, verdicts, strict=True):
        is_stored = isinstance(verdict, Verdict) and verdict.error is None
        found[number] = verdict if is_stored else getattr(verdict, "error", verdict)
    return [found[number] for number in range(len(asked))]


def _upload(asked: Put, by: users.Admitted | TagmillError) -> Upload:
    """Raises Unauthorized, Forbidden, and what is wrong with the request."""
    if isinstance(by, TagmillError):
        raise by
    if asked.form is not None:
        users.refuse_forged(asked.form)
    asked.refuse()
    if "/" in asked.system_id:
        raise NotFound(NO_SUCH_PAGE)
    if len(asked.cluster or "") > MAX_CLUSTER:
        raise Invalid(f"cluster has at most {MAX_CLUSTER} characters", field="cluster")
    # Without a body, what is wrong is that the document is empty.
    if asked.body:
        refuse_type(asked.content_type, *XML)
    xml = unpacked(asked.body, asked.coding, DOCUMENT)
    probes = {asked.probe: xml}
    upload = Upload(asked.system_id, asked.cluster, probes=probes, expects=_expected(asked))
    return by.scope.guarded(upload)


def _expected(asked: Put) -> Callable[[Any], None]:
    is_right = asked.condition.of_document(asked.probe)

    def check(node: Any) -> None:
        if node is None and asked.cluster is None:
            raise NotFound(
                f"there is no node {asked.system_id!r}: name the `cluster` that it is to be made in"
            )
        is_right(node)

    return check


def _actor(
    asked: Sequence[Put], known: Mapping[users.Shown, users.Admitted | TagmillError]
) -> Actor:
    """Several uploads in one transaction have one actor, of whom no table that uploads change takes
    note: all of their users."""
    found = (known[item.credentials] for item in asked)
    names = {by.user.get_username() for by in found if isinstance(by, users.Admitted)}
    request_id = asked[0].request_id if len(asked) == 1 else ""
    return Actor(", ".join(sorted(names)), "api", request_id)
