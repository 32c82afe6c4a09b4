"""POST /api/v1/workers/lease: the long-poll."""

from __future__ import annotations

import re
from typing import ClassVar

from api.protocol import authenticated, check_leases, registered
from api.server.broker import Broker, Poll, Taken
from api.server.http import Request
from api.server.native import Native, body_of, credentials, respond
from api.server.operations import APPLIED, PREFER, WORKERS, Answer, Content, Operation
from api.strict import refuse_type
from tagmill.errors import Invalid
from tagmill.fleet.models import Partition
from tagmill.work import leases, workers
from tagmill.work.models import WorkerToken
from tagmill_wire.messages import TOKEN_SCHEME, LeaseAnswer, LeaseRequest, dump

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
        if (kind := request.getHeader("content-type")) is not None:
            refuse_type(kind, "application/json")
        poll = Poll(credentials(request, TOKEN_SCHEME), body_of(request))
        seconds = min(wait(request.getHeader("prefer")), self._most_seconds)
        answer = await self._broker.poll(poll, seconds)
        if seconds:
            request.setHeader("Preference-Applied", f"wait={seconds}")
        respond(request, poll.dumped if answer.leases else dump(answer))


def wait(prefer: str | None) -> int:
    """The seconds of `Prefer: wait=N` (RFC 7240); 0 without it."""
    found = WAIT.search(prefer or "")
    return int(found[1]) if found else 0


def take(poll: Poll) -> Taken:
    """One attempt, in a thread. Authenticates each time: a token may be revoked while it waits. And
    does so first: a stranger's message is not even read."""
    token = authenticated(poll.token)
    asked = checked(poll.request)
    worker = registered(asked.worker, token)
    clusters = cluster_ids(token)
    if poll.is_new and asked.leases is not None:
        leases.give_back_unnamed(worker, asked.leases)
    poll.is_new = False
    answer = leases.lease(worker, asked.max_partitions, asked.holds)
    leased: frozenset[int] = frozenset()
    if answer.leases:
        poll.dumped = dump(answer)
        partitions = [lease.partition for lease in answer.leases]
        leased = frozenset(
            Partition.objects.filter(id__in=partitions).values_list("cluster_id", flat=True)
        )
    return Taken(answer, clusters, leased, frozenset(asked.holds))


def checked(asked: LeaseRequest) -> LeaseRequest:
    """Raises Invalid."""
    if not 1 <= asked.max_partitions <= MAX_PARTITIONS:
        raise Invalid(f"must be 1 to {MAX_PARTITIONS}", field="max_partitions")
    if len(asked.holds) > MAX_HOLDS:
        raise Invalid(f"must be {MAX_HOLDS} partitions at most", field="holds")
    check_leases(asked.leases or ())
    return asked


def give_back(poll: Poll, answer: LeaseAnswer) -> None:
    worker = registered(poll.request.worker, authenticated(poll.token))
    leases.give_up(worker, [lease.lease for lease in answer.leases], "the client disconnected")


def cluster_ids(token: WorkerToken) -> frozenset[int] | None:
    """The token's clusters; None for every cluster."""
    clusters = workers.clusters_of(token)
    return None if clusters is None else frozenset(clusters.values_list("id", flat=True))
