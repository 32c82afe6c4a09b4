"""Simulated workers: the real protocol over real HTTP, and a pause where a worker evaluates.

As a program (`python -m loadtest.rig.simulated`) it runs many of them in one reactor. Its standard
input has one JSON object a line: first the `Behaviour`, then commands; each is answered by a line.

    {"workers": 50}   have that many workers; answers {"workers": 50} when all have registered
    {"report": true}  answers what was counted since the last report (`Report`)
    {"drain": true}   no more failures and no more polls: finish what is leased, then end

The end of standard input ends the process.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall, deferLater
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from tagmill_wire import bitmap, messages
from tagmill_wire.pagehead import PageHead

reactor: Any = _reactor

WAIT_SECONDS = 25
# A server that refuses or breaks off is asked again after this long; a real worker backs off.
RETRY_SECONDS = 0.2
# As many as a real worker asks for.
MAX_PARTITIONS = 64
# Connections made at the same time; more would only fill the server's accept queue.
REGISTRATIONS = 16
GONE = 410
# The kind of error that is no answer of the server: a fault of the simulation itself.
ENDED = "a simulated worker ended"
GOOD = (200, 201)


@dataclass(frozen=True)
class Behaviour:
    """What the workers do. Shares are probabilities of one lease, from `seed` alone."""

    host: str
    port: int
    token: str
    seed: int
    evaluation: float  # seconds from the last page to the completion
    fetch: float  # share of leases that fetch the whole partition, as a worker that holds nothing
    fail: float  # share of leases whose worker vanishes with them
    late: float  # share of results sent after their lease was given back
    duplicate: float  # share of results sent twice
    batch_nodes: int = 1024
    batch_bytes: int = 4 << 20
    process: int = 0


@dataclass
class Report:
    """Milliseconds of each call, and counts. `parked` polls were answered without work."""

    lease_ms: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)
    complete_ms: list[float] = field(default_factory=list)
    applied: int = 0
    late: int = 0
    duplicates: int = 0
    vanished: int = 0
    parked: int = 0
    heartbeats: int = 0
    round_trips: int = 0
    received_bytes: int = 0
    errors: dict[str, int] = field(default_factory=dict)


def plausible(seed: int, expression: int, partition: int, rev: int, capacity: int) -> int:
    """A bitmap that anybody can make again: an eighth of the slots, and one that moves with rev."""
    key = f"{seed}/{expression}/{partition}".encode()
    size = capacity // 8
    data = hashlib.shake_128(key).digest(3 * size)
    first, second, third = (
        int.from_bytes(data[n * size : (n + 1) * size], "little") for n in range(3)
    )
    return (first & second & third) ^ (1 << (rev * 7919 + expression) % capacity)


@dataclass(frozen=True, slots=True)
class Answer:
    """`head`: the lines before the body, as they came."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        wanted = f"{name}:".lower().encode()
        for line in self.head.split(b"\r\n"):
            if line[: len(wanted)].lower() == wanted:
                return line[len(wanted) :].strip().decode("latin-1")
        return None


def base_rev(lease: dict[str, Any]) -> int | None:
    """What every expression of a lease was evaluated at. None: the whole partition is needed, also
    by a lease for a vocabulary, which has no expressions."""
    bases = [item["base_rev"] for item in lease["expressions"]]
    return None if None in bases else min(bases, default=None)


class Connection(Protocol):
    """As much of HTTP/1.1 as the server's answers need: one request at a time, Content-Length.

    An own client, since treq costs more CPU for a request than the server does to answer it.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._answer: Deferred[Answer] | None = None
        self._head: tuple[int, int, bytes] | None = None
        self.is_open = True

    def ask(self, request: bytes) -> Deferred[Answer]:
        """Fails with ConnectionError when the connection breaks."""
        self._answer = Deferred()
        answer = self._answer
        if self.is_open and self.transport is not None:
            self.transport.write(request)  # type: ignore[call-arg, misc]
        else:
            self._finish(ConnectionError("closed"))
        return answer

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._data[:end])
            lines = head.lower().split(b"\r\n")
            del self._data[: end + 4]
            sizes = [line[15:] for line in lines if line.startswith(b"content-length:")]
            self._head = int(lines[0].split()[1]), int(sizes[0]) if sizes else 0, head
        status, size, head = self._head
        if len(self._data) >= size:
            body = bytes(self._data[:size])
            del self._data[:size]
            self._head = None
            self._finish(Answer(status, head, body))

    def connectionLost(self, reason: Any = None) -> None:
        self.is_open = False
        self._finish(ConnectionError("lost"))

    def close(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abortConnection()

    def _finish(self, result: Answer | Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if isinstance(result, Exception):
            answer.errback(result)
        else:
            answer.callback(result)


class Refused(Exception):
    def __init__(self, path: str, status: int) -> None:
        super().__init__(f"{path} {status}")
        self.status = status


class SimulatedWorker:
    """Works until it vanishes with a lease."""

    def __init__(self, number: int, behaviour: Behaviour, fleet: Fleet) -> None:
        self._behaviour = behaviour
        self._fleet = fleet
        self._name = f"simulated-{behaviour.process}-{number}"
        self._random = random.Random(f"{behaviour.seed}/{self._name}")  # noqa: S311 - reproducible
        self._calls: Connection | None = None
        self._beats: Connection | None = None
        self._heart = LoopingCall(self._beat)
        self._uuid = ""
        self._incarnation = ""
        self._leases: list[str] = []
        self._images: dict[int, int] = {}
        self._next: dict[str, Any] | None = None
        self.is_registered = False

    async def run(self) -> None:
        try:
            while True:
                try:
                    if not self._uuid:
                        await self._register()
                    if not await self._turn():
                        return
                except Refused as error:
                    self._fleet.count_error(str(error))
                    if error.status == GONE:
                        self._uuid, self._next = "", None
                    await deferLater(reactor, RETRY_SECONDS)
                except OSError as error:
                    self._fleet.count_error(type(error).__name__)
                    self._calls = None
                    await deferLater(reactor, RETRY_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        if self._heart.running:
            self._heart.stop()
        for connection in (self._calls, self._beats):
            if connection is not None:
                connection.close()

    async def _register(self) -> None:
        said = str(messages.VERSION)
        message = messages.Register(self._name, "simulated", said, protocol=messages.VERSION)
        body = await self._post("workers/register", message)
        answer = messages.load(messages.Registered, body)
        self._uuid = answer.worker
        if self._incarnation != answer.incarnation:
            self._images.clear()
        self._incarnation = answer.incarnation
        if not self._heart.running:
            self._heart.start(answer.heartbeat_seconds, now=False)
        self.is_registered = True
        self._fleet.look()

    async def _turn(self) -> bool:
        """One lease to its end. False: this worker is gone."""
        answer, self._next = self._next, None
        if answer is None or not answer["leases"]:
            answer = await self._lease()
        if not answer["leases"]:
            self._fleet.report.parked += 1
            return True
        self._leases = [lease["lease"] for lease in answer["leases"]]
        if self._chance(self._behaviour.fail):
            self._fleet.report.vanished += 1
            return False
        results = [await self._result(lease) for lease in answer["leases"]]
        await deferLater(reactor, self._behaviour.evaluation * len(results))
        await self._complete(results)
        self._leases = []
        return True

    async def _lease(self) -> dict[str, Any]:
        began = reactor.seconds()
        message = messages.LeaseRequest(self._uuid, MAX_PARTITIONS, list(self._images))
        body = await self._post("workers/lease", message, wait=WAIT_SECONDS)
        answer: dict[str, Any] = orjson.loads(body)
        if answer["leases"]:
            self._fleet.report.lease_ms.append((reactor.seconds() - began) * 1000)
        return answer

    async def _result(self, lease: dict[str, Any]) -> messages.PartitionResult:
        partition, capacity = lease["partition"], lease["capacity"]
        rev = await self._fetch(lease)
        seed = self._behaviour.seed
        matches = [
            messages.MatchResult(
                item["expression"],
                bitmap.encode(
                    plausible(seed, item["expression"], partition, rev, capacity), capacity
                ),
            )
            for item in lease["expressions"]
        ]
        seconds = self._behaviour.evaluation
        return messages.PartitionResult(lease["lease"], partition, rev, matches, [], 0, seconds)

    def _since(self, lease: dict[str, Any]) -> int | None:
        """The rev to fetch after, as a worker chooses it: that of what it holds, or else that at
        which every expression was evaluated."""
        if self._chance(self._behaviour.fetch):
            return None
        return self._images.get(lease["partition"], base_rev(lease))

    async def _fetch(self, lease: dict[str, Any]) -> int:
        """The rev of the image: a delta, or every page."""
        partition, held = lease["partition"], self._since(lease)
        since = "" if held is None else f"&since={held}"
        sizes = f"max_nodes={self._behaviour.batch_nodes}&max_bytes={self._behaviour.batch_bytes}"
        rev: int | None = None
        after: str | None = ""
        while after is not None:
            sizes = (
                f"max_nodes={self._behaviour.batch_nodes}&max_bytes={self._behaviour.batch_bytes}"
            )
            named = f"incarnation={self._incarnation}"
            path = f"partitions/{partition}/nodes?{named}&{sizes}{since}{after}"
            began = reactor.seconds()
            answer = await self._ask("GET", path, None, "Accept-Encoding: zstd\r\n")
            self._fleet.report.batch_ms.append((reactor.seconds() - began) * 1000)
            head = PageHead.read(answer.header)
            rev = head.rev if rev is None else rev
            after = None if head.next is None else f"&after={head.next}"
        self._images[partition] = rev or 0
        return rev or 0

    async def _complete(self, results: list[messages.PartitionResult]) -> None:
        # As a real worker: the next lease comes with the answer.
        following = messages.NextLease(MAX_PARTITIONS, list(self._images))
        message = messages.Completion(self._uuid, self._incarnation, results, following)
        if self._chance(self._behaviour.late):
            give_up = messages.GiveUp(self._uuid, self._leases, "simulated: late")
            await self._post("workers/fail", give_up)
        began = reactor.seconds()
        body = await self._post("workers/complete", message)
        report = self._fleet.report
        report.complete_ms.append((reactor.seconds() - began) * 1000)
        answer = orjson.loads(body)
        self._next = answer.get("next")
        if self._next and self._next["leases"]:
            report.lease_ms.append(report.complete_ms[-1])
        for result in answer["results"]:
            if result["outcome"] == "late":
                report.late += 1
            else:
                report.applied += 1
        if self._chance(self._behaviour.duplicate):
            report.duplicates += 1
            again = messages.Completion(self._uuid, self._incarnation, results)
            await self._post("workers/complete", again)

    async def _beat(self) -> None:
        """Uses a connection of its own, since the other may be in a long-poll. Raises nothing."""
        if not self._uuid:
            return
        try:
            if self._beats is None or not self._beats.is_open:
                self._beats = await self._fleet.connect()
            message = messages.Heartbeat(self._uuid, self._leases)
            request = self._request("POST", "workers/heartbeat", messages.dump(message))
            answer = await self._beats.ask(request)
            self._fleet.report.heartbeats += 1
            if answer.status == GONE:
                self._uuid = ""
        except OSError as error:
            self._fleet.count_error(f"heartbeat {type(error).__name__}")

    async def _post(self, path: str, message: Any, wait: int = 0) -> bytes:
        prefer = f"Prefer: wait={wait}\r\n" if wait else ""
        return (await self._ask("POST", path, messages.dump(message), prefer)).body

    async def _ask(self, method: str, path: str, body: bytes | None, headers: str) -> Answer:
        """A good answer. Raises Refused, or an OSError."""
        if self._calls is None or not self._calls.is_open:
            self._calls = await self._fleet.connect()
        answer = await self._calls.ask(self._request(method, path, body, headers))
        self._fleet.report.round_trips += 1
        self._fleet.report.received_bytes += len(answer.body)
        if answer.status not in GOOD:
            raise Refused(path.partition("?")[0].rpartition("/")[2], answer.status)
        return answer

    def _request(self, method: str, path: str, body: bytes | None, headers: str = "") -> bytes:
        data = body or b""
        kind = "Content-Type: application/json\r\n" if body is not None else ""
        head = (
            f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}"
            f"Authorization: {messages.TOKEN_SCHEME} {self._behaviour.token}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    def _chance(self, share: float) -> bool:
        return not self._fleet.is_draining and self._random.random() < share


class Fleet:
    """The workers of this process. A worker that vanished is replaced by a new one."""

    def __init__(self, behaviour: Behaviour, say: Callable[[dict[str, Any]], None]) -> None:
        self.report = Report()
        self.is_draining = False
        self._behaviour = behaviour
        self._say = say
        self._endpoint = HostnameEndpoint(reactor, behaviour.host, behaviour.port)
        self._numbers = itertools.count()
        self._workers: list[SimulatedWorker] = []
        self._wanted = 0
        self._announced = -1

    async def connect(self) -> Connection:
        made: Connection = await connectProtocol(self._endpoint, Connection())
        return made

    def command(self, command: dict[str, Any]) -> None:
        if "workers" in command:
            self._wanted, self._announced = command["workers"], -1
            self.look()
        elif "report" in command:
            report, self.report = self.report, Report()
            self._say(asdict(report))
        elif "drain" in command:
            self.is_draining = True
            self._say({"draining": len(self._workers)})

    def look(self) -> None:
        """Start what is missing, a few at a time, and say when all have registered."""
        registered = sum(worker.is_registered for worker in self._workers)
        waiting = len(self._workers) - registered
        for _ in range(min(self._wanted - len(self._workers), REGISTRATIONS - waiting)):
            worker = SimulatedWorker(next(self._numbers), self._behaviour, self)
            self._workers.append(worker)
            Deferred.fromCoroutine(worker.run()).addBoth(self._ended, worker)
        if registered >= self._wanted != self._announced:
            self._announced = self._wanted
            self._say({"workers": registered})

    def count_error(self, kind: str) -> None:
        self.report.errors[kind] = self.report.errors.get(kind, 0) + 1

    def _ended(self, result: Any, worker: SimulatedWorker) -> None:
        self._workers.remove(worker)
        if isinstance(result, Failure):
            self.count_error(f"{ENDED}: {result.value!r}")
        # Also while draining: what is left to do is done by somebody.
        reactor.callLater(0, self.look)


class _Console(LineReceiver):
    """Standard input and output of the program."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    def lineReceived(self, line: bytes) -> None:
        message = orjson.loads(line)
        if self._fleet is None:
            self._fleet = Fleet(Behaviour(**message), self._say)
        else:
            self._fleet.command(message)

    def _say(self, message: dict[str, Any]) -> None:
        self.sendLine(orjson.dumps(message))  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any = None) -> None:
        # At once: nothing here needs an orderly end, and the server must cope with that.
        os._exit(0)


def main() -> int:
    StandardIO(_Console())
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
