"""Streams of events, by a clock."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from twisted.internet.task import Clock
from twisted.web.test.requesthelper import DummyRequest

from api.server.events import MAX_STREAM_SECONDS, REBUILDS, Events, Stream
from api.server.threads import Threads


def test_a_stream_ends_after_a_while_and_its_timer_with_it() -> None:
    clock = Clock()
    events = Events(clock, Threads(clock, "test", 1), REBUILDS)
    requests: list[Any] = [DummyRequest([b""]) for _ in range(2)]
    old, left = (Stream(request) for request in requests)
    events.add(uuid4(), old)
    clock.advance(1)
    events.add(uuid4(), left)
    clock.advance(MAX_STREAM_SECONDS - 1)
    assert old.closed.called
    assert not left.closed.called
    left.close()
    assert clock.getDelayedCalls() == []
