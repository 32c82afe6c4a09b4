"""One simulated worker. It plans, asks and says what a real one does, by the real one's modules;
only its verdicts come from nowhere, after a pause."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from twisted.internet import reactor as _reactor
from twisted.internet.task import LoopingCall, deferLater

from loadtest.rig.behaviour import Behaviour, Fleet, holds
from loadtest.rig.calls import Calls, Refused
from tagmill_wire import bitmap, messages
from tagmill_wire.messages import Completion, LeaseAnswer, NextLease, Pace, PartitionResult
from tagmill_wire.pagehead import PageHead
from tagmill_worker.completer import MAX_RESULTS, MAX_VERDICTS
from tagmill_worker.evaluators.passes import PageAnswer
from tagmill_worker.job import Job, plan
from tagmill_worker.pages import Page, unpack
from tagmill_worker.sets import MAX_KEPT, DefinedSet, defined
from tagmill_worker.store import Image

reactor: Any = _reactor

WAIT_SECONDS = 25
# A server that refuses or breaks off is asked again after this long; a real worker backs off.
RETRY_SECONDS = 0.2
# As many as a real worker asks for.
MAX_PARTITIONS = 64
NOT_FOUND = 404
GONE = 410
# What a page says of a tombstone, and of a node without documents.
NO_DOCUMENTS = (b"null", b"{}")


class _Node(msgspec.Struct):
    """What is looked at of a page: not its documents."""

    slot: int
    rev: int
    probes: msgspec.Raw


class _Batch(msgspec.Struct):
    nodes: list[_Node]


@dataclass
class _Held:
    """The revs of a partition's nodes by slot, as of `rev`."""

    rev: int
    nodes: dict[int, int]


class SimulatedWorker:
    """Works until it vanishes with a lease."""

    def __init__(self, number: int, behaviour: Behaviour, fleet: Fleet) -> None:
        self._behaviour = behaviour
        self._fleet = fleet
        self._name = f"simulated-{behaviour.process}-{number}"
        self._random = random.Random(f"{behaviour.seed}/{self._name}")  # noqa: S311 - reproducible
        self._calls = Calls(fleet, behaviour.token)
        # A connection for these alone: the other may be in a long-poll.
        self._beats = Calls(fleet, behaviour.token)
        self._heart = LoopingCall(self._beat)
        self._uuid = ""
        self._incarnation = ""
        self._leases: list[str] = []
        self._images: dict[int, _Held] = {}
        self._sets: dict[str, DefinedSet] = {}
        self._pace: Pace | None = None
        self._next: LeaseAnswer | None = None
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
                    self._calls.close()
                    await deferLater(reactor, RETRY_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        if self._heart.running:
            self._heart.stop()
        self._calls.close()
        self._beats.close()

    async def _register(self) -> None:
        said = str(messages.VERSION)
        message = messages.Register(self._name, "simulated", said, protocol=messages.VERSION)
        body = await self._calls.post("workers/register", message)
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
        if answer is None or not answer.leases:
            answer = await self._lease()
        if not answer.leases:
            self._fleet.report.parked += 1
            return True
        self._leases = [lease.lease for lease in answer.leases]
        if self._chance(self._behaviour.fail):
            self._fleet.report.vanished += 1
            return False
        live = await self._set(answer)
        jobs = [self._planned(lease, answer, live) for lease in answer.leases]
        for job in jobs:
            await self._evaluate(job)
        await deferLater(reactor, self._behaviour.evaluation * len(jobs))
        await self._complete(jobs)
        self._leases = []
        return True

    # -- leasing ---------------------------------------------------------------------------------

    async def _lease(self) -> LeaseAnswer:
        began = reactor.seconds()
        message = messages.LeaseRequest(self._uuid, *self._wanted())
        body = await self._calls.post("workers/lease", message, wait=WAIT_SECONDS)
        answer = messages.load(LeaseAnswer, body)
        if answer.leases:
            self._fleet.report.lease_ms.append((reactor.seconds() - began) * 1000)
        return answer

    def _wanted(
        self,
    ) -> tuple[int, list[int], list[str], Pace | None, bool, UnsetType, bool]:
        """What a request for leases says, beside the worker. It has no others at that moment, and
        knows no share."""
        return MAX_PARTITIONS, list(self._images), [], self._pace, True, UNSET, True

    async def _set(self, answer: LeaseAnswer) -> DefinedSet | None:
        """The expression set that the leases name, fetched once a version."""
        if not isinstance(answer.set, str):
            return None
        found = self._sets.pop(answer.set, None)
        if found is None:
            path = f"expression-sets/{answer.set}"
            body = (await self._calls.ask("GET", path, None, "Accept-Encoding: zstd\r\n")).unpacked
            found = defined(answer.set, messages.load(messages.ExpressionSet, body))
        self._sets[answer.set] = found
        while len(self._sets) > MAX_KEPT:
            del self._sets[next(iter(self._sets))]
        return found

    def _planned(
        self, lease: messages.LeasedPartition, answer: LeaseAnswer, live: DefinedSet | None
    ) -> Job:
        held = self._images.get(lease.partition)
        image = None if held is None else Image(held.rev, [], 0, 0)
        job = plan(lease, answer.expressions, image, self._incarnation, live)
        if self._chance(self._behaviour.fetch):
            job.without_held()
        return job

    # -- evaluating ------------------------------------------------------------------------------

    async def _evaluate(self, job: Job) -> None:
        """Fetch what the job needs, and answer for it."""
        partition = job.lease.partition
        image = self._images.get(partition)
        kept = dict(image.nodes) if image is not None and job.held is not None else {}
        read: dict[int, int | None] = {}
        if job.brought is not None:
            job.pages.append(job.brought)
            read = _nodes(b"" if job.brought.is_empty else unpack(job.brought.data))
        elif not job.is_current:
            async for page, nodes in self._pages(partition, job.since):
                job.pages.append(page)
                read |= nodes
        found = {slot: rev for slot, rev in read.items() if rev is not None}
        nodes = {slot: rev for slot, rev in {**kept, **read}.items() if rev is not None}
        if job.since is None or job.held is not None:
            self._images[partition] = _Held(job.rev, nodes)
        seconds = self._behaviour.evaluation
        changed = bitmap.from_slots(read)
        job.fetched(PageAnswer(changed, self._members(job, found), len(found), seconds))
        rest = {slot: rev for slot, rev in nodes.items() if slot not in read}
        job.add(PageAnswer(0, self._members(job, rest, job.full), 0, 0.0))
        count = job.lease.capacity * max(1, len(job.everything))
        self._pace = Pace(0.0, seconds / count)

    def _members(
        self, job: Job, nodes: dict[int, int], expressions: Sequence[int] | None = None
    ) -> dict[int, int]:
        seed, partition = self._behaviour.seed, job.lease.partition
        return {
            key: bitmap.from_slots(
                slot for slot, rev in nodes.items() if holds(seed, key, partition, slot, rev)
            )
            for key in (job.everything if expressions is None else expressions)
        }

    async def _pages(self, partition: int, since: int | None) -> Any:
        """Each page, and the revs of its nodes by slot (None: it holds no document)."""
        named = f"incarnation={self._incarnation}" + ("" if since is None else f"&since={since}")
        sizes = f"max_nodes={self._behaviour.batch_nodes}&max_bytes={self._behaviour.batch_bytes}"
        after: str | None = ""
        while after is not None:
            path = f"partitions/{partition}/nodes?{named}&{sizes}{after}"
            began = reactor.seconds()
            answer = await self._calls.ask("GET", path, None, "Accept-Encoding: zstd\r\n")
            self._fleet.report.batch_ms.append((reactor.seconds() - began) * 1000)
            head = PageHead.read(answer.header)
            after = None if head.next is None else f"&after={head.next}"
            nodes = _nodes(answer.unpacked)
            yield Page(partition, head.rev, head.next, head.is_empty, b""), nodes

    # -- completing ------------------------------------------------------------------------------

    async def _complete(self, jobs: Sequence[Job]) -> None:
        if self._chance(self._behaviour.late):
            give_up = messages.GiveUp(self._uuid, self._leases, "simulated: late")
            await self._calls.post("workers/fail", give_up)
        cut = list(_cut(jobs))
        for number, part in enumerate(cut, 1):
            # As a real worker: the next lease comes with the last answer.
            following = NextLease(*self._wanted()) if number == len(cut) else None
            results = await self._send(part, following)
            if self._chance(self._behaviour.duplicate):
                self._fleet.report.duplicates += 1
                await self._calls.post("workers/complete", self._completion(results, None))

    async def _send(
        self, jobs: Sequence[Job], following: NextLease | None
    ) -> list[PartitionResult]:
        """The results, as they were sent. Those that name a set which the server does not know go
        again by expression."""
        began = reactor.seconds()
        results = [job.result() for job in jobs]
        try:
            body = await self._calls.post("workers/complete", self._completion(results, following))
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
            results = [job.result(by_set=False) for job in jobs]
            body = await self._calls.post("workers/complete", self._completion(results, following))
        report = self._fleet.report
        report.complete_ms.append((reactor.seconds() - began) * 1000)
        answer = messages.load(messages.CompletionAnswer, body)
        self._next = answer.next
        if answer.next is not None and answer.next.leases:
            report.lease_ms.append(report.complete_ms[-1])
        late = sum(result.outcome == "late" for result in answer.results)
        report.late += late
        report.applied += len(answer.results) - late
        return results

    def _completion(
        self, results: list[PartitionResult], following: NextLease | None
    ) -> Completion:
        return Completion(self._uuid, self._incarnation, results, following)

    async def _beat(self) -> None:
        """Raises nothing."""
        if not self._uuid:
            return
        try:
            message = messages.Heartbeat(self._uuid, self._leases)
            await self._beats.post("workers/heartbeat", message)
            self._fleet.report.heartbeats += 1
        except Refused as error:
            self._fleet.count_error(str(error))
            if error.status == GONE:
                self._uuid = ""
        except OSError as error:
            self._fleet.count_error(f"heartbeat {type(error).__name__}")

    def _chance(self, share: float) -> bool:
        return not self._fleet.is_draining and self._random.random() < share


def _nodes(batch: bytes) -> dict[int, int | None]:
    """The revs of a batch's nodes by slot; None: it holds no document."""
    if not batch:
        return {}
    return {
        node.slot: node.rev if bytes(node.probes) not in NO_DOCUMENTS else None
        for node in msgspec.json.decode(batch, type=_Batch).nodes
    }


def _cut(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The results that go together, as a real worker's."""
    part: list[Job] = []
    verdicts = 0
    for job in jobs:
        verdicts += len(job.everything)
        if part and (len(part) == MAX_RESULTS or verdicts > MAX_VERDICTS):
            yield part
            part, verdicts = [], len(job.everything)
        part.append(job)
    yield part
