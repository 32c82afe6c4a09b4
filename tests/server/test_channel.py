"""Deadlines of connections, and how many there may be: no client holds one by doing little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from api.server.board import Board, Slot
from api.server.channel import (
    HEADER_SECONDS,
    IDLE_SECONDS,
    MIN_RATE,
    MIN_READ_RATE,
    STALL_SECONDS,
)
from api.server.http import Caps, Site

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLOSING = REQUEST.replace(b"Host", b"Connection: close\r\nHost")
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


class Answers(Resource):
    """Says `body`; None: nothing yet."""

    isLeaf = True
    body: bytes | None = b"hello"

    def render(self, request: Any) -> Any:
        self.request = request
        if self.body is None:
            return NOT_DONE_YET
        request.setHeader(b"Content-Length", b"%d" % len(self.body))
        return self.body


class Client:
    """One connection to a site whose clock the test moves."""

    def __init__(
        self,
        caps: Caps = Caps(100, None),  # noqa: B008 - frozen
        slot: Slot | None = None,
    ) -> None:
        self.clock = Clock()
        self.answers = Answers()
        self.site = Site(
            self.clock, [], self.answers, caps=caps, intake=lambda _: None, gate=no_gate, slot=slot
        )
        self.channel, self.transport = self.connect()

    def connect(self, host: str = "192.0.2.1") -> tuple[Any, Any]:
        channel = self.site.buildProtocol(IPv4Address("TCP", host, 1))
        transport = StringTransport(peerAddress=IPv4Address("TCP", host, 1))
        if channel is not None:
            channel.makeConnection(transport)
        return channel, transport

    def send(self, data: bytes) -> None:
        self.channel.dataReceived(data)

    def drip(self, data: bytes, every: float, most: float) -> float:
        """Send byte by byte until the connection is aborted; after how many seconds that was."""
        began = self.clock.seconds()
        for number in range(int(most / every)):
            if self.is_aborted:
                break
            self.send(data[number : number + 1])
            self.clock.advance(every)
        return self.clock.seconds() - began

    @property
    def is_aborted(self) -> bool:
        return bool(self.transport.disconnected)


def no_gate(request: Any) -> Any:
    raise AssertionError("no body here is large")


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_byte_now_and_then_does_not_keep_headers_open(client: Client) -> None:
    assert client.drip(REQUEST[:-1].ljust(1000, b"x"), 1.0, 300.0) == HEADER_SECONDS


def test_each_request_of_a_connection_has_the_deadline(client: Client) -> None:
    client.send(REQUEST)
    client.clock.advance(HEADER_SECONDS + 1)
    client.send(REQUEST[:-2])
    client.clock.advance(HEADER_SECONDS - 1)
    client.send(REQUEST[-2:])
    assert client.transport.value().count(b"hello") == 2
    client.clock.advance(HEADER_SECONDS + 1)
    assert not client.is_aborted


def test_a_byte_now_and_then_does_not_keep_a_body_open(client: Client) -> None:
    client.send(POST % 10_000)
    lasted = client.drip(b"x" * 1000, 1.0, 300.0)
    assert STALL_SECONDS <= lasted <= STALL_SECONDS + 2


def test_a_slow_body_may_take_its_time(client: Client) -> None:
    client.send(POST % (60 * 1024))
    for _ in range(60):
        client.send(b"x" * 1024)
        client.clock.advance(1024 / MIN_RATE)
    assert b"hello" in client.transport.value()
    assert not client.is_aborted


def test_what_is_held_back_by_the_server_costs_the_client_no_time(client: Client) -> None:
    client.send(POST % 10)
    client.channel.hold()
    client.clock.advance(10 * STALL_SECONDS)
    assert not client.is_aborted
    assert client.transport.producerState == "paused"
    client.channel.release()
    assert client.transport.producerState == "producing"
    client.clock.advance(STALL_SECONDS)
    assert client.is_aborted


def test_an_idle_connection_is_closed(client: Client) -> None:
    client.send(REQUEST)
    client.clock.advance(IDLE_SECONDS)
    assert client.transport.disconnecting
    client.clock.advance(STALL_SECONDS)
    assert client.is_aborted


def test_a_request_that_waits_for_the_server_is_not_timed_out(client: Client) -> None:
    client.answers.body = None
    client.send(REQUEST)
    client.clock.advance(10 * IDLE_SECONDS)
    client.answers.request.write(b"late")
    client.answers.request.finish()
    assert not client.is_aborted
    assert not client.transport.disconnecting


@pytest.mark.parametrize("size", [10, 4 * 1024 * 1024])
def test_who_asks_to_close_and_does_not_read_is_dropped(client: Client, size: int) -> None:
    client.answers.body = b"x" * size
    client.send(CLOSING)
    assert client.transport.disconnecting
    client.clock.advance(STALL_SECONDS - 1)
    assert not client.is_aborted
    client.clock.advance(size / MIN_READ_RATE + 2)
    assert client.is_aborted


def test_a_stream_whose_client_does_not_read_is_dropped(client: Client) -> None:
    client.answers.body = None
    client.send(REQUEST)
    stream = client.answers.request
    for _ in range(3):
        stream.write(b"x" * 1000)
        client.channel.pauseProducing()
        client.clock.advance(STALL_SECONDS - 1)
        client.channel.resumeProducing()
    client.clock.advance(10 * STALL_SECONDS)
    assert not client.is_aborted
    client.channel.pauseProducing()
    client.clock.advance(STALL_SECONDS + 2)
    assert client.is_aborted


def test_nothing_is_left_of_a_connection_that_is_lost(client: Client) -> None:
    client.answers.body = b"x" * 1000
    client.send(CLOSING)
    client.channel.connectionLost(Failure(ConnectionDone()))
    assert client.clock.getDelayedCalls() == []
    assert client.site.connections == 0


def test_who_leaves_with_the_whole_answer_is_logged(client: Client) -> None:
    client.answers.body = None
    client.send(REQUEST)
    client.answers.request.write(b"all of it")
    with structlog.testing.capture_logs() as lines:
        client.channel.connectionLost(Failure(ConnectionDone()))
    assert [(line["event"], line["status"]) for line in lines] == [("request", 200)]


def test_connections_are_capped_in_all_and_for_each_address() -> None:
    client = Client(Caps(total=4, address=2))
    assert client.connect("192.0.2.1")[0] is not None
    assert client.connect("192.0.2.1")[0] is None
    for number in (2, 3):
        assert client.connect(f"192.0.2.{number}")[0] is not None
    assert client.connect("192.0.2.4")[0] is None
    client.channel.connectionLost(Failure(ConnectionDone()))
    assert client.connect("192.0.2.1")[0] is not None


def test_connections_are_capped_for_all_processes_together(tmp_path: Path) -> None:
    board = Board.made(tmp_path / "board", 2)
    mine, theirs = Slot(board, 1), Slot(board, 2)
    theirs.connections = 2
    client = Client(Caps(total=4, address=None), mine)
    assert (mine.connections, theirs.all_connections) == (1, 3)
    assert client.connect()[0] is not None
    assert client.connect()[0] is None
    theirs.connections = 1
    assert client.connect()[0] is not None
    client.channel.connectionLost(Failure(ConnectionDone()))
    assert mine.connections == 2


def test_a_site_that_drains_waits_until_the_last_answers_have_left() -> None:
    client = Client()
    idle_channel, idle_transport = client.connect()
    client.answers.body = None
    client.send(REQUEST)
    drained: list[None] = []
    client.site.drain().addCallback(drained.append)
    assert (drained, idle_transport.disconnecting) == ([], False)
    client.answers.request.finish()
    client.clock.advance(0)
    assert b"connection: close\r\n" in client.transport.value().lower()
    # What was written is on its way, no further.
    assert not drained
    assert (client.transport.disconnecting, idle_transport.disconnecting) == (True, True)
    for channel in (client.channel, idle_channel):
        channel.connectionLost(Failure(ConnectionDone()))
    assert drained == [None]


def test_behind_a_proxy_all_connections_may_be_of_one_address() -> None:
    client = Client(Caps(total=4, address=None))
    assert [client.connect()[0] is None for _ in range(4)] == [False] * 3 + [True]


def behind(client: Client, size: int) -> Any:
    """Another connection, with an answer that its client does not read; its transport."""
    channel, transport = client.connect()
    client.answers.body = b"x" * size
    channel.dataReceived(REQUEST)
    channel.pauseProducing()
    return channel, transport


def test_what_waits_for_all_clients_together_is_bounded() -> None:
    client = Client(Caps(100, None, unread=3_000_000))
    first, second = behind(client, 1_000_000), behind(client, 1_000_000)
    assert 2_000_000 <= client.site.unread.total < 2_001_000
    # Who has read everything counts no more, and is the last to go when it falls behind again.
    first[0].resumeProducing()
    assert 1_000_000 <= client.site.unread.total < 1_001_000
    third = behind(client, 1_500_000)
    with structlog.testing.capture_logs() as lines:
        fourth = behind(client, 1_000_000)
    assert [item[1].disconnected for item in (first, second, third, fourth)] == [
        False,
        True,
        False,
        False,
    ]
    assert [line["client"] for line in lines if "TAGMILL_UNREAD_BYTES" in line["event"]] == [
        "192.0.2.1"
    ]
    # What is still written to it, before its end is noticed, counts for nobody.
    total = client.site.unread.total
    second[0].write(b"x" * 1000)
    assert client.site.unread.total == total
    for channel, _ in (second, third, fourth):
        channel.connectionLost(Failure(ConnectionDone()))
    assert client.site.unread.total == 0


def test_one_answer_may_be_larger_than_all_that_may_wait() -> None:
    client = Client(Caps(100, None, unread=1_000_000))
    small, large = behind(client, 500_000), behind(client, 2_000_000)
    assert (small[1].disconnected, large[1].disconnected) == (True, False)


def test_clients_that_keep_up_are_never_counted() -> None:
    client = Client(Caps(100, None, unread=100_000))
    client.answers.body = b"x" * 60_000
    for _ in range(10):
        client.connect()[0].dataReceived(REQUEST)
    assert client.site.unread.total == 0
