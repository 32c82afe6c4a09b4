"""How results are put together, and what becomes of those that the server does not take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tagmill.config import Config
from tagmill_wire import bitmap
from tagmill_wire.messages import (
    Completion,
    CompletionAnswer,
    LeaseAnswer,
    LeasedPartition,
    MatchResult,
    NextLease,
    PartitionResult,
    ResultOutcome,
    dump,
)
from tagmill_worker import completer as completers
from tagmill_worker.backoff import MAX_SECONDS
from tagmill_worker.completer import Completer
from tagmill_worker.errors import Refused, ServerError, Unavailable
from tagmill_worker.metrics import Metrics

NEXT = LeaseAnswer([LeasedPartition("next", 9, "c", 1, 8, [])], {})
TOO_LARGE = Refused(413, "too_large", "no")


class Server:
    """A client that answers by `verdict`, and holds the first request until `open`."""

    def __init__(self, verdict: Callable[[Completion], ServerError | None]) -> None:
        self.verdict = verdict
        self.requests: list[list[int]] = []
        self.asked: list[bool] = []
        self.incarnations: list[str] = []
        self._gate: Deferred[None] = Deferred()

    def open(self) -> None:
        self._gate.callback(None)

    async def complete(self, message: Completion) -> CompletionAnswer:
        self.incarnations.append(message.incarnation)
        self.requests.append([result.partition for result in message.results])
        self.asked.append(message.next is not None)
        if not self._gate.called:
            await self._gate
        error = self.verdict(message)
        if error is not None:
            raise error
        return CompletionAnswer(
            [ResultOutcome(item.lease, "applied", 0, 0) for item in message.results],
            None if message.next is None else NEXT,
        )


class Sender:
    """A completer with nobody around it. `ended`: (partition, error) of each job."""

    def __init__(self, server: Server) -> None:
        self.clock = Clock()
        self.ended: list[tuple[int, ServerError | None]] = []
        self.expects = False
        self.unwanted: list[LeaseAnswer] = []
        client: Any = server
        self.completer = Completer(
            self.clock,
            client,
            Metrics(),
            lambda job, error: self.ended.append((job.lease.partition, error)),
            lambda: None,
            expects=lambda: self.expects,
            unwanted=self.unwanted.append,
        )

    def add(self, partition: int, size: int, incarnation: str = "first", verdicts: int = 0) -> None:
        lease = SimpleNamespace(partition=partition)
        job: Any = SimpleNamespace(lease=lease, incarnation=incarnation, trace="")
        self.completer.add(job, result_of(partition, size), verdicts)


def result_of(partition: int, size: int) -> PartitionResult:
    """A result that has `size` bytes as JSON."""
    bare = PartitionResult("l", partition, 1, [MatchResult(1, "")], [], 1, 0.5)
    padded = MatchResult(1, "x" * (size - len(dump(bare))))
    return PartitionResult("l", partition, 1, [padded], [], 1, 0.5)


@pytest.fixture(autouse=True)
def _small_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completers, "MAX_BYTES", 4000)


def test_results_go_together_up_to_the_bound_and_a_larger_one_alone() -> None:
    server = Server(lambda _: None)
    sender = Sender(server)
    for partition, size in enumerate([500, 2000, 2000, 500, 9000, 500, 500]):
        sender.add(partition, size)
    server.open()
    assert server.requests == [[0], [1, 2], [3], [4], [5, 6]]
    assert sender.ended == [(partition, None) for partition in range(7)]


def test_results_go_together_up_to_a_number_of_verdicts() -> None:
    """By set they are a few bytes each, but the server stores every one."""
    server = Server(lambda _: None)
    sender = Sender(server)
    most = completers.MAX_VERDICTS
    for partition, verdicts in enumerate([1, most // 2, most // 2, 1, most + 1, 1]):
        sender.add(partition, 200, verdicts=verdicts)
    server.open()
    assert server.requests == [[0], [1, 2], [3], [4], [5]]


def limited(most: int) -> Callable[[Completion], ServerError | None]:
    """A server, or a proxy, that takes bodies of so many bytes."""
    return lambda message: TOO_LARGE if len(dump(message)) > most else None


def test_what_is_too_large_is_halved_and_stays_so() -> None:
    server = Server(limited(1100))
    sender = Sender(server)
    for partition in range(8):
        sender.add(partition, 450)
    server.open()
    assert sorted(sender.ended) == [(partition, None) for partition in range(8)]
    assert [len(request) for request in server.requests] == [1, 7, 3, 1, 1, 1, 1, 1, 1, 1]


def test_a_result_that_alone_is_too_large_is_given_up_and_says_why() -> None:
    server = Server(limited(1100))
    sender = Sender(server)
    for partition, size in enumerate([450, 450, 1500, 450]):
        sender.add(partition, size)
    server.open()
    errors = dict(sender.ended)
    assert [errors[partition] for partition in (0, 1, 3)] == [None] * 3
    assert "1500 bytes: raise TAGMILL_REQUEST_BYTES on the server" in str(errors[2])


def answers(*errors: ServerError | None) -> Callable[[Completion], ServerError | None]:
    waiting = list(errors)
    return lambda _: waiting.pop(0)


@pytest.mark.parametrize("status", [500, 502])
def test_results_that_the_server_fails_on_are_given_up_and_later_ones_sent(status: int) -> None:
    failure = Unavailable("it failed", None, status)
    server = Server(answers(*[failure] * completers.SEND_ATTEMPTS, None))
    sender = Sender(server)
    sender.add(1, 500)
    sender.add(2, 500)
    server.open()
    sender.clock.pump([MAX_SECONDS] * completers.SEND_ATTEMPTS)
    assert sender.ended == [(1, failure), (2, None)]


@pytest.mark.parametrize("status", [503, 429, None])
def test_a_server_that_is_away_is_waited_for(status: int | None) -> None:
    away = Unavailable("not now", None, status)
    rounds = 3 * completers.SEND_ATTEMPTS
    server = Server(answers(*[away] * rounds, None))
    sender = Sender(server)
    sender.add(1, 500)
    server.open()
    sender.clock.pump([MAX_SECONDS] * rounds)
    assert sender.ended == [(1, None)]


def test_the_least_request_a_server_takes_holds_a_partition_of_500_tags() -> None:
    capacity, most = Config.model_fields["partition_slots"].default, 2**63 - 1
    bits = bitmap.encode((1 << capacity) - 1, capacity)
    matches = [MatchResult(most, bits, most, bits) for _ in range(500)]
    result = PartitionResult("-" * 36, most, most, matches, [], capacity, 0.123456789)
    (least,) = (
        constraint.ge
        for constraint in Config.model_fields["request_bytes"].metadata
        if hasattr(constraint, "ge")
    )
    size = len(dump(Completion("-" * 36, "-" * 36, [result])))
    assert 200_000 < size < 220_000 < least


def lingering() -> tuple[Sender, Server]:
    """A result waits a moment for others."""
    server = Server(lambda _: None)
    sender = Sender(server)
    sender.expects = True
    sender.add(1, 200)
    assert server.requests == []
    return sender, server


def test_results_take_the_question_for_the_next_lease_along_at_once() -> None:
    sender, server = lingering()
    answer = sender.completer.along(NextLease(4, [], []))
    assert (server.requests, server.asked) == ([[1]], [True])
    assert answer is not None
    found: list[object] = []
    answer.addCallback(found.append)
    # One question at a time, and none where no result waits.
    assert sender.completer.along(NextLease(4, [], [])) is None
    server.open()
    assert (found, sender.ended) == ([NEXT], [(1, None)])
    assert sender.completer.along(NextLease(4, [], [])) is None


def test_who_asked_along_is_not_kept_waiting_by_an_outage() -> None:
    """The results are sent again, without a question that may be out of date by then."""
    refusals = iter([Unavailable("away", None, 503)])
    sender, server = lingering()
    server.verdict = lambda _: next(refusals, None)
    server.open()
    answer = sender.completer.along(NextLease(4, [], []))
    assert answer is not None
    found: list[object] = []
    answer.addCallback(found.append)
    assert found == [None]
    sender.clock.advance(MAX_SECONDS)
    assert (server.asked, sender.ended) == ([True, False], [(1, None)])


def test_leases_that_nobody_waits_for_any_more_are_given_back() -> None:
    sender, server = lingering()
    answer = sender.completer.along(NextLease(4, [], []))
    assert answer is not None
    answer.addErrback(lambda _: None)
    answer.cancel()
    server.open()
    assert (sender.unwanted, sender.ended) == ([NEXT], [(1, None)])
