"""Who watches a rebuild or a preview hears of its progress, and of its end once."""

from __future__ import annotations

from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from api.server.events import GONE
from api.server.watch import Found, Pace, Watch

ONE, OTHER = UUID(int=1), UUID(int=2)
RUNNING, OVER = (False, b"running"), (True, b"over")


class Reads:
    """A watch whose readings are answered by the test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.asked: list[tuple[list[UUID], Deferred[Found]]] = []
        self.watch = Watch(self.clock, Pace(each=1.0, longest=1.5, look_again=60.0), self._read)

    def _read(self, wanted: list[UUID]) -> Deferred[Found]:
        self.asked.append((wanted, Deferred()))
        return self.asked[-1][1]

    def wait(self, uuid: UUID, seconds: float) -> list[bytes]:
        got: list[bytes] = []
        Deferred.fromCoroutine(self.watch.until_over(uuid, seconds)).addCallback(got.append)
        return got


def test_who_waits_gets_the_end_and_whoever_waits_for_another_does_not() -> None:
    reads = Reads()
    first, second, other = (reads.wait(uuid, 9.0) for uuid in (ONE, ONE, OTHER))
    # What the first reading may have missed is read after a pause, once for all.
    reads.asked[0][1].callback({ONE: RUNNING})
    reads.clock.advance(1.0)
    wanted, found = reads.asked[1]
    assert (len(reads.asked), set(wanted)) == (2, {ONE, OTHER})
    found.callback({ONE: OVER, OTHER: RUNNING})
    assert (first, second, other) == ([b"over"], [b"over"], [])
    reads.watch.changed()
    reads.clock.advance(1.5)
    reads.asked[2][1].callback({OTHER: GONE})
    assert other == [GONE[1]]


def test_a_wait_that_is_over_leaves_nothing_behind() -> None:
    reads = Reads()
    waited = reads.wait(ONE, 5.0)
    left = Deferred.fromCoroutine(reads.watch.until_over(ONE, 5.0))
    left.addErrback(lambda _: None).cancel()
    reads.asked[0][1].callback({ONE: RUNNING})
    reads.clock.advance(5.0)
    assert waited == [b""]
    # The cancelled wait asked for another reading. Now nobody listens, and nothing is read.
    reads.asked[1][1].callback({ONE: OVER})
    reads.clock.advance(1.0)
    reads.watch.changed()
    assert len(reads.asked) == 2 and reads.clock.getDelayedCalls() == []


def test_an_ending_server_lets_everybody_go() -> None:
    reads = Reads()
    waited = reads.wait(ONE, 5.0)
    reads.watch.drain()
    assert waited == [b""]
