"""An API server that speaks docs/protocol.md over real HTTP, and misbehaves on demand."""

from __future__ import annotations

import base64
import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import zstandard
from twisted.internet.defer import Deferred
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from tagmill_wire import bitmap
from tagmill_wire.messages import (
    SHARES_SINCE,
    Batch,
    BatchNode,
    Completion,
    GiveUp,
    Heartbeat,
    LeaseRequest,
    Register,
    ShareRequest,
    dump,
    load,
)
from tagmill_wire.pagehead import PageHead

TOKEN = "tmw_test_secret"
CAPACITY = 64


@dataclass
class Partition:
    """`nodes`: (rev, probes) by slot; None is a tombstone."""

    id: int
    rev: int = 0
    nodes: dict[int, tuple[int, dict[str, str] | None]] = field(default_factory=dict)

    def put(self, slot: int, xml: str | None, **probes: str) -> None:
        self.rev += 1
        content = None if xml is None else {"lshw": xml, **probes}
        self.nodes[slot] = (self.rev, content)

    def batch(self, since: int | None, after: int | None, most: int) -> Batch:
        chosen = [
            BatchNode(slot, rev, probes)
            for slot, (rev, probes) in sorted(self.nodes.items())
            if (after is None or slot > after) and (probes if since is None else rev > since)
        ]
        following = chosen[most - 1].slot if len(chosen) > most else None
        return Batch(self.id, self.rev, chosen[:most], following)


Fault = Callable[[Any], Any]


class MockApi(Resource):
    """`faults[call]` is a queue: each request of the call takes one and answers by it.

    A fault takes the request and answers bytes or NOT_DONE_YET; None behaves. `work` is what is
    leased next: (partition id, {expression id: base_rev}). `live`: the version of an expression set
    and its ids, by which leases name expressions. `brings`: whether leases for changes have the
    nodes that changed. `share`: its epoch, and the partitions of it.
    """

    isLeaf = True

    def __init__(self, reactor: Any) -> None:
        super().__init__()
        self.reactor = reactor
        self.partitions: dict[int, Partition] = {}
        self.expressions: dict[int, str] = {}
        self.matches: dict[tuple[int, int], tuple[int, int]] = {}
        self.vocabulary_revs: dict[int, int] = {}
        self.work: deque[dict[int, dict[int, int | None]]] = deque()
        self.faults: dict[str, deque[Fault | None]] = defaultdict(deque)
        self.requests: list[tuple[str, Any]] = []
        self.pages: list[dict[str, int]] = []
        self.completions: list[Completion] = []
        self.given_up: list[GiveUp] = []
        self.registered: list[Register] = []
        self.asked: list[LeaseRequest] = []
        self.lost: list[str] = []
        self.registration: dict[str, Any] = {
            "incarnation": "first",
            "clusters": [],
            "heartbeat_seconds": 1000,
            "lease_seconds": 60,
            "evaluation_seconds": 10.0,
            "batch_nodes": 1000,
            "batch_bytes": 1 << 22,
            "protocol": 2,
        }
        self.brings = False
        self.share: tuple[int, list[int]] = (1, [])
        self.shares: list[ShareRequest] = []
        self.beats: list[Heartbeat] = []
        self.evaluation_seconds: float | None = None
        self.most_nodes = 1000
        self.parked: list[Any] = []
        self.live: tuple[str, list[int]] | None = None
        self.fetched: list[str] = []
        self.numbers = itertools.count(1)
        self.images: dict[tuple[int, str], tuple[str, bytes]] = {}
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []
        self.port: Any = None

    def listen(self) -> str:
        self.port = self.reactor.listenTCP(0, Site(self), interface="127.0.0.1")
        return f"http://127.0.0.1:{self.port.getHost().port}"

    def until(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Fires when the condition holds, looking after every request."""
        done: Deferred[None] = Deferred()
        self._waiting.append((condition, done))
        self._look()
        return done

    def _look(self) -> None:
        for item in list(self._waiting):
            if item[0]():
                self._waiting.remove(item)
                item[1].callback(None)

    # -- requests --------------------------------------------------------------------------------

    def render(self, request: Any) -> Any:
        path = request.path.decode().removeprefix("/api/v1/")
        call = {"partitions": "batch", "expression-sets": "set"}.get(path.split("/")[0])
        if "/images/" in path:
            call = "share" if request.method == b"PUT" else "image"
        if "/dictionaries/" in path:
            call = "dictionary"
        call = call or path.removeprefix("workers/")
        request.setHeader("Content-Type", "application/json")
        request.body = body = request.content.read()
        self.requests.append((call, body))
        self.reactor.callLater(0, self._look)
        if request.getHeader("authorization") != f"Worker {TOKEN}":
            return problem(401, "unauthorized")(request)
        fault = self.faults[call].popleft() if self.faults[call] else None
        return self.behave(request) if fault is None else fault(request)

    def behave(self, request: Any) -> Any:
        """What the request is answered with where there is no fault, or after it."""
        path = request.path.decode().removeprefix("/api/v1/")
        if "/images/" in path:
            return self._image(request, path)
        if "/dictionaries/" in path:
            return problem(404, "not_found")(request)
        if path.startswith("partitions/"):
            return self._batch(request, int(path.split("/")[1]))
        if path.startswith("expression-sets/"):
            return self._set(request, path.split("/")[1])
        return getattr(self, f"_{path.removeprefix('workers/')}")(request, request.body)

    def _register(self, request: Any, body: bytes) -> bytes:
        self.registered.append(load(Register, body))
        request.setResponseCode(201)
        return orjson.dumps({"worker": f"worker-{len(self.registered)}", **self.registration})

    def _heartbeat(self, request: Any, body: bytes) -> bytes:
        self.beats.append(load(Heartbeat, body))
        epoch = {"epoch": self.share[0]} if self.registration["protocol"] >= SHARES_SINCE else {}
        return orjson.dumps({"lost": self.lost, **epoch})

    def _share(self, request: Any, body: bytes) -> bytes:
        self.shares.append(load(ShareRequest, body))
        epoch, partitions = self.share
        return orjson.dumps({"epoch": epoch, "partitions": partitions})

    def _lease(self, request: Any, body: bytes) -> Any:
        self.asked.append(load(LeaseRequest, body))
        if not self.work:
            self.parked.append(request)
            request.notifyFinish().addErrback(lambda _: self.parked.remove(request))
            return NOT_DONE_YET
        return self._leases()

    def enqueue(self, wanted: dict[int, dict[int, int | None]]) -> None:
        self.work.append(wanted)
        if self.parked:
            request = self.parked.pop(0)
            request.write(self._leases())
            request.finish()

    def _leases(self) -> bytes:
        wanted = self.work.popleft()
        leases = [
            {
                "lease": f"lease-{next(self.numbers)}",
                "partition": partition,
                "cluster": "c",
                "rev": self.partitions[partition].rev if partition in self.partitions else 0,
                "capacity": CAPACITY,
                "expressions": [
                    {"expression": key, "base_rev": base} for key, base in expressions.items()
                ],
                "vocabulary_rev": self.vocabulary_revs.get(partition),
                **self._changes(partition, list(expressions.values())),
            }
            for partition, expressions in wanted.items()
        ]
        keys = {key for expressions in wanted.values() for key in expressions}
        texts = {str(key): {"text": self.expressions[key], "namespaces": {}} for key in keys}
        named = self.registration["incarnation"]
        answer: dict[str, Any] = {"leases": leases, "expressions": texts, "incarnation": named}
        if self.registration["protocol"] >= SHARES_SINCE:
            answer["epoch"] = self.share[0]
        if self.evaluation_seconds is not None:
            answer["evaluation_seconds"] = self.evaluation_seconds
        if self.live is not None:
            self._by_set(answer)
        return orjson.dumps(answer)

    def _changes(self, partition: int, bases: list[int | None]) -> dict[str, Any]:
        known = [base for base in bases if base is not None]
        if not self.brings or len(known) < len(bases):
            return {}
        batch = self.partitions[partition].batch(min(known), None, self.most_nodes)
        data = zstandard.compress(dump(batch)) if batch.nodes else b""
        found = {"since": min(known), "rev": batch.rev, "data": base64.b64encode(data).decode()}
        return {"changes": found}

    def _by_set(self, answer: dict[str, Any]) -> None:
        """The same answer, naming the set."""
        assert self.live is not None
        version, ids = self.live
        answer["set"] = version
        for lease in answer["leases"]:
            named = [item for item in lease["expressions"] if item["expression"] in ids]
            lease["expressions"] = [item for item in lease["expressions"] if item not in named]
            lease["of_set"] = [
                {
                    "base_rev": item["base_rev"],
                    "which": bitmap.encode(1 << ids.index(item["expression"]), 8),
                }
                for item in named
            ]
        for key in ids:
            answer["expressions"].pop(str(key), None)

    def _set(self, request: Any, version: str) -> Any:
        self.fetched.append(version)
        if self.live is None or self.live[0] != version:
            return problem(404, "unknown_expression_set")(request)
        named = [
            {"expression": key, "text": self.expressions[key], "namespaces": {}}
            for key in self.live[1]
        ]
        request.setHeader("Content-Encoding", "zstd")
        return zstandard.compress(orjson.dumps({"version": version, "expressions": named}))

    def _batch(self, request: Any, partition: int) -> Any:
        if partition not in self.partitions:
            return problem(404, "not_found")(request)
        given = {key.decode(): values[0] for key, values in request.args.items()}
        named = given.pop("incarnation").decode()
        if named != self.registration["incarnation"]:
            return problem(410, "incarnation_changed")(request)
        asked = {key: int(value) for key, value in given.items()}
        self.pages.append(asked)
        most = min(asked["max_nodes"], self.most_nodes)
        batch = self.partitions[partition].batch(asked.get("since"), asked.get("after"), most)
        request.setHeader("Content-Encoding", "zstd")
        for name, value in PageHead.of(batch).headers().items():
            request.setHeader(name, value)
        return zstandard.compress(dump(batch))

    def _image(self, request: Any, path: str) -> Any:
        """As the server: the newest of each partition and schema."""
        _, partition, _, name = path.split("/")
        key = int(partition)
        if request.method == b"PUT":
            schema = name.rsplit("-", 2)[1]
            self.images[key, schema] = (name, request.body)
            return b'{"outcome": "stored"}'
        schema = request.args[b"schema"][0].decode()
        found = self.images.get((key, schema))
        if found is None or not found[0].startswith(request.args[b"incarnation"][0].decode()):
            return problem(404, "image_missing")(request)
        request.setHeader("Tagmill-Image", found[0])
        request.setHeader("Content-Type", "application/octet-stream")
        return found[1]

    def _complete(self, request: Any, body: bytes) -> bytes:
        message = load(Completion, body)
        self.completions.append(message)
        answer: dict[str, Any] = {"results": [self._apply(item) for item in message.results]}
        if message.next is not None:
            nothing = {"leases": [], "expressions": {}}
            answer["next"] = orjson.loads(self._leases()) if self.work else nothing
        return orjson.dumps(answer)

    def _apply(self, result: Any) -> dict[str, Any]:
        stale = 0
        for match in result.matches:
            key = (match.expression, result.partition)
            rev, old = self.matches.get(key, (-1, 0))
            members = bitmap.decode(match.members, CAPACITY)
            if match.base_rev is None and rev < result.rev:
                self.matches[key] = (result.rev, members)
            elif match.base_rev is not None and rev == match.base_rev:
                evaluated = bitmap.decode(match.evaluated, CAPACITY)
                new = (old & ~evaluated) | (members & evaluated)
                self.matches[key] = (result.rev, new)
            else:
                stale += 1
        applied = len(result.matches) - stale
        return {"lease": result.lease, "outcome": "applied", "applied": applied, "stale": stale}

    def _fail(self, request: Any, body: bytes) -> bytes:
        self.given_up.append(load(GiveUp, body))
        return b"{}"

    @property
    def results(self) -> list[Any]:
        return [result for message in self.completions for result in message.results]


# -- faults ---------------------------------------------------------------------------------------


def problem(status: int, code: str, **headers: str) -> Fault:
    def answer(request: Any) -> bytes:
        request.setResponseCode(status)
        for name, value in headers.items():
            request.setHeader(name.replace("_", "-"), value)
        return orjson.dumps(
            {"title": "t", "status": status, "code": code, "detail": f"it is {code}"}
        )

    return answer


def drop(request: Any) -> Any:
    """Close the connection without a byte."""
    request.channel.transport.abortConnection()
    return NOT_DONE_YET


def truncate(request: Any) -> Any:
    """Announce more than is sent."""
    request.setHeader("Content-Length", "1000")
    request.write(b'{"partition":1,')
    request.channel.transport.loseConnection()
    return NOT_DONE_YET


def garbage(request: Any) -> bytes:
    return b"<html>Please log in</html>"


def body(data: bytes, **headers: str) -> Fault:
    def answer(request: Any) -> bytes:
        for name, value in headers.items():
            request.setHeader(name.replace("_", "-"), value)
        return data

    return answer


def never(request: Any) -> Any:
    """Half an answer, and then nothing."""
    request.setHeader("Content-Length", "1000")
    request.write(b"{")
    return NOT_DONE_YET
