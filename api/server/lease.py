"""POST /api/v1/workers/lease: the long-poll."""

from __future__ import annotations

import re
from typing import ClassVar
from uuid import UUID

from msgspec import UNSET
from msgspec.structs import replace

from api.protocol import called, caller, check_leases
from api.server.broker import Broker, Poll, Taken
from api.server.http import Request
from api.server.native import Native, credentials, json_of, respond
from api.server.operations import APPLIED, PREFER, WORKERS, Answer, Content, Operation
from tagmill.errors import Invalid
from tagmill.work import leases, traces
from tagmill.work.leases import After
from tagmill.work.policy import Speed
from tagmill.work.workers import Caller
from tagmill_wire import tracing
from tagmill_wire.messages import TOKEN_SCHEME, LeaseAnswer, LeaseRequest, NextLease, dump

WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,6})(?:$|[,;\s])")


# Bounds one transaction and one answer; a worker that wants more asks again.
MAX_PARTITIONS = 256
# The partitions that a worker names as held, ten bytes each.
MAX_HOLDS = 100_000

OPERATION = Operation(
    name="workers_lease",
    method="post",
    path="/api/v1/workers/lease",
    tag="worker protocol",
    schemes=WORKERS,
    summary="Lease partitions",
    errors=("invalid", "malformed_body", "worker_gone", "incarnation_changed"),
    description="See docs/protocol.md, `lease`. Without work, the answer is held back for as long "
    f"as `Prefer` asks for. `max_partitions` is 1 to {MAX_PARTITIONS}; `holds` names {MAX_HOLDS} "
    "partitions at most.",
    parameters=(PREFER,),
    request=Content.of(LeaseRequest),
    answers={200: Answer("What is leased, if anything.", Content.of(LeaseAnswer), APPLIED)},
)


class LeaseResource(Native):
    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(self, broker: Broker, most_seconds: int) -> None:
        super().__init__()
        self._broker = broker
        self._most_seconds = most_seconds

    async def answer(self, request: Request) -> None:
        body = json_of(request)
        poll = Poll(credentials(request, TOKEN_SCHEME), body)
        seconds = min(wait(request.getHeader("prefer")), self._most_seconds)
        answer = await self._broker.poll(poll, seconds)
        if seconds:
            request.setHeader("Preference-Applied", f"wait={seconds}")
        if poll.trace:
            request.setHeader(tracing.HEADER, poll.trace)
        respond(request, poll.dumped if answer.leases else dump(answer))


def wait(prefer: str | None) -> int:
    """The seconds of `Prefer: wait=N` (RFC 7240); 0 without it."""
    found = WAIT.search(prefer or "")
    return int(found[1]) if found else 0


def take(poll: Poll) -> Taken:
    """One attempt, in a thread. Authenticates each time: a token may be revoked while it waits."""
    if poll.asked is None:
        asked, worker = called(poll.token, LeaseRequest, poll.body)
        check(asked)
        if asked.leases is not None:
            leases.give_back_unnamed(worker, asked.leases)
        poll.asked = asked
    else:
        asked = poll.asked
        worker = caller(poll.token, UUID(asked.worker))
    granted = granted_to(worker, asked)
    if granted.answer.leases:
        poll.dumped = dump(granted.answer)
        poll.trace = traced(granted.answer)
    clusters = None if worker.cluster_ids is None else frozenset(worker.cluster_ids)
    return Taken(granted.answer, clusters, granted.clusters, frozenset(asked.holds), granted.owns)


def check(asked: LeaseRequest | NextLease) -> None:
    """Raises Invalid."""
    if not 1 <= asked.max_partitions <= MAX_PARTITIONS:
        raise Invalid(f"must be 1 to {MAX_PARTITIONS}", field="max_partitions")
    if len(asked.holds) > MAX_HOLDS:
        raise Invalid(f"must be {MAX_HOLDS} partitions at most", field="holds")
    check_leases(asked.leases or ())


def granted_to(
    worker: Caller, asked: LeaseRequest | NextLease, after: After | None = None
) -> leases.Granted:
    """What is leased now, if anything, after what was completed. Raises WorkerGone."""
    speed = None if asked.pace is None else Speed(asked.pace.document, asked.pace.evaluation)
    granted = leases.grant(
        worker,
        asked.max_partitions,
        asked.holds,
        speed,
        by_set=asked.sets is True,
        brings_changes=asked.changes is True,
        after=after,
    )
    if asked.epoch is UNSET or asked.epoch == granted.epoch:
        return granted
    return granted._replace(answer=replace(granted.answer, epoch=granted.epoch))


def traced(answer: LeaseAnswer) -> str:
    """The place in a trace of what is leased, where traces are on and a request has made it. What
    several have made goes on with one of them, and names the others."""
    if not tracing.is_on() or not answer.leases:
        return ""
    first, *others = traces.taken([item.partition for item in answer.leases]) or [""]
    span = tracing.begin("lease", first, others, partitions=len(answer.leases))
    if span is None:
        return ""
    span.end()
    return span.place


def give_back(poll: Poll, answer: LeaseAnswer) -> None:
    if poll.asked is not None:
        give_up(poll.token, poll.asked.worker, answer)


def give_up(token: str, worker: str, answer: LeaseAnswer) -> None:
    """The client has gone before it had the answer."""
    named = [lease.lease for lease in answer.leases]
    leases.give_up(caller(token, UUID(worker)), named, "the client disconnected")
