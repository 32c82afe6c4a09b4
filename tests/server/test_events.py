"""Streams of events, by a clock."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.web.server import Request
from twisted.web.test.requesthelper import DummyChannel

from api.server.events import MAX_STREAM_SECONDS, REBUILDS, Stream
from api.server.watch import Watch


def test_a_stream_ends_after_a_while_and_its_timer_with_it() -> None:
    clock = Clock()
    watch = Watch(clock, REBUILDS.pace, lambda _: Deferred())
    requests: list[Any] = [Request(DummyChannel(), False) for _ in range(2)]
    old, left = (Stream(request) for request in requests)
    one, other = uuid4(), uuid4()
    watch.add(one, old, MAX_STREAM_SECONDS)
    clock.advance(1)
    watch.add(other, left, MAX_STREAM_SECONDS)
    clock.advance(MAX_STREAM_SECONDS - 1)
    assert old.closed.called
    assert not left.closed.called
    watch.remove(one, old)
    watch.remove(other, left)
    assert clock.getDelayedCalls() == []
