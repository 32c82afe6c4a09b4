"""Clients beside a measurement, without a server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from loadtest.bench import BenchError, Session
from loadtest.benches.preview import (
    HTTP_SECONDS,
    WAIT_SECONDS,
    PreviewBench,
    PreviewOptions,
    PreviewRun,
)
from loadtest.rig.clients import Ask, Clients
from loadtest.rig.http import Api
from tests.support.threads import DEADLINE_SECONDS

Connect = Callable[[int], AbstractContextManager[Ask]]


def connecting(ask: Callable[[int], float]) -> Connect:
    @contextlib.contextmanager
    def connect(number: int) -> Iterator[Ask]:
        yield lambda: ask(number)

    return connect


def nothing() -> None:
    pass


class Server:
    """Answers the first question of each client at once, but for the `slow` one's; all others when
    it is let go. The answer is the client's number."""

    def __init__(self, slow: int | None = None) -> None:
        self.slow = slow
        self.asked: set[int] = set()
        self.let_go = threading.Event()

    def answer(self, number: int) -> float:
        if number in self.asked or number == self.slow:
            assert self.let_go.wait(DEADLINE_SECONDS)
        self.asked.add(number)
        return float(number)


def test_each_client_is_answered_before_anything_is_measured() -> None:
    server = Server(slow=2)

    with Clients(3, connecting(server.answer), 10) as clients:

        def others_are_answered() -> None:
            if clients.seconds() == [0.0, 1.0]:
                server.let_go.set()

        clients.wait(others_are_answered)
        assert set(clients.seconds()) == {0.0, 1.0, 2.0}
        clients.check()


def test_an_error_of_one_client_ends_the_measurement() -> None:
    server = Server()

    def refused(number: int) -> float:
        if number == 1:
            server.let_go.set()
            raise OSError("refused")
        return server.answer(number)

    with (
        Clients(2, connecting(refused), 10) as clients,
        pytest.raises(BenchError, match="client 1: refused"),
    ):
        clients.wait(nothing)


def test_an_error_after_the_first_answers_is_found_at_the_end() -> None:
    answers = iter([0.5])

    with Clients(1, connecting(lambda _: next(answers)), 10) as clients:
        clients.wait(nothing)
    with pytest.raises(BenchError, match="client 0: StopIteration"):
        clients.check()


def test_clients_are_not_waited_for_without_end() -> None:
    server = Server(slow=1)

    with (
        Clients(2, connecting(server.answer), 0.1) as clients,
        pytest.raises(BenchError, match=r"1 clients had no answer within 0\.1 s"),
    ):
        clients.wait(nothing)
    server.let_go.set()


def test_what_the_stack_says_while_clients_wait_gets_out() -> None:
    server = Server(slow=0)

    def ended() -> None:
        server.let_go.set()
        raise BenchError("server ended")

    with (
        Clients(1, connecting(server.answer), 10) as clients,
        pytest.raises(BenchError, match="server ended"),
    ):
        clients.wait(ended)


def test_many_clients_preview_different_definitions_at_once() -> None:
    class Answering:
        def post(self, _path: str, _body: Any, **_: str) -> Any:
            return {"state": "complete", "node_count": 1}

    run = PreviewRun(PreviewOptions(1, "lean", 1, 1, 1, 1, 1, None), cast(Session, None))
    api = cast(Api, Answering())

    def ask(_: int) -> list[str]:
        return [run.preview(api)[1].definition for _ in range(300)]

    with ThreadPoolExecutor(8) as pool:
        found = [text for texts in pool.map(ask, range(8)) for text in texts]
    assert len(set(found)) == 8 * 300


def test_a_preview_that_is_not_complete_in_time_is_still_answered() -> None:
    assert HTTP_SECONDS > WAIT_SECONDS


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"previews": 0}, "--previews must be positive"),
        ({"nodes": -1}, "--nodes must be positive"),
        ({"tags": 0}, "--tags must be positive"),
        ({"workers": 0}, "--workers must be positive"),
        ({"clients": -1}, "--clients must be zero or more"),
        ({"nodes": 1_000_001}, "--nodes is at most 1,000,000"),
    ],
)
def test_a_preview_bench_without_anything_to_measure_is_refused(
    option: dict[str, int], message: str
) -> None:
    options = {"nodes": 100, "profile": "lean", "seed": 1, "previews": 1, "workers": 1}
    options |= {"clients": 1, "tags": 1, "slots": None} | option
    with pytest.raises(BenchError, match=message):
        PreviewBench().run(options, cast(Session, None))


def test_a_preview_bench_fails_on_mismatches_and_never_on_speed() -> None:
    slow = {"p95_ms": 1e9, "rebuild": {"ratio": 1e9}}
    assert PreviewBench().fault({**slow, "mismatches": 0}) is None
    assert PreviewBench().fault({**slow, "mismatches": 1}) is not None
