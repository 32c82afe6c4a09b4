"""POST /api/v1/workers/complete: results, and with them the next lease."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import structlog
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from api import metrics
from api.protocol import called, check_leases
from api.server.broker import Broker
from api.server.http import Request
from api.server.lease import check, give_up, granted_to, traced
from api.server.native import Native, credentials, json_of, respond
from api.server.operations import WORKERS, Answer, Content, Operation
from api.server.threads import Threads
from tagmill.flows import completions
from tagmill.work import leases
from tagmill.work.leases import Granted
from tagmill_wire import tracing
from tagmill_wire.messages import TOKEN_SCHEME, Completion, CompletionAnswer, dump

log = structlog.get_logger("tagmill.completion")

OPERATION = Operation(
    name="workers_complete",
    method="post",
    path="/api/v1/workers/complete",
    tag="worker protocol",
    schemes=WORKERS,
    summary="Hand results in",
    errors=("invalid", "malformed_body", "worker_gone", "incarnation_changed"),
    description="See docs/protocol.md, `complete`.",
    request=Content.of(Completion),
    answers={200: Answer("What came of each result.", Content.of(CompletionAnswer))},
)


class Completed(NamedTuple):
    """`dumped`: the answer as JSON. `granted`: the next lease, where something is leased, and its
    place in a trace."""

    dumped: bytes
    worker: str
    granted: Granted | None
    trace: str = ""


class CompletionResource(Native):
    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(self, threads: Threads, broker: Broker) -> None:
        super().__init__()
        self._threads = threads
        self._broker = broker

    async def answer(self, request: Request) -> None:
        body = json_of(request)
        completed = await self._take(credentials(request, TOKEN_SCHEME), body)
        if completed.trace:
            request.setHeader(tracing.HEADER, completed.trace)
        respond(request, completed.dumped)

    def _take(self, token: str, body: bytes) -> Deferred[Completed]:
        """Cancelled when the client leaves: then what was leased for it is given back."""
        done: Deferred[Completed] = Deferred(lambda _: None)

        def answered(completed: Completed) -> None:
            if completed.granted is not None:
                self._broker.work_taken(completed.granted.clusters)
            if not done.called:
                done.callback(completed)
            elif completed.granted is not None:
                leased = completed.granted.answer
                giving = self._threads.call(give_up, token, completed.worker, leased)
                giving.addErrback(kept)

        def failed(failure: Failure) -> None:
            if not done.called:
                done.errback(failure)

        self._threads.call(take, token, body).addCallbacks(answered, failed)
        return done


def kept(failure: Failure) -> None:
    """The lease then ends by its deadline."""
    log.warning("leases of a vanished client kept", error=failure.getErrorMessage())


def take(token: str, body: bytes) -> Completed:
    """In a thread. The results are stored before anything is leased, in a transaction of their own:
    what comes after cannot undo them, and their partitions are locked no longer than they need."""
    completion, worker = called(token, Completion, body)
    named = [result.lease for result in completion.results]
    check_leases(named)
    asked = completion.next
    if asked is not None:
        check(asked)
    answer, after = completions.store(worker, completion)
    metrics.observe_completion(completion, answer)
    if asked is None:
        leases.charge(worker, after.charges)
        return Completed(dump(answer), completion.worker, None)
    if asked.leases is not None:
        leases.give_back_unnamed(worker, [*asked.leases, *named])
    granted = granted_to(worker, asked, after)
    dumped = dump(replace(answer, next=granted.answer))
    if not granted.answer.leases:
        return Completed(dumped, completion.worker, None)
    return Completed(dumped, completion.worker, granted, traced(granted.answer))
