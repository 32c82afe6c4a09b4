"""Who is woken, and what becomes of polls that end while they are being tried."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from api.server.broker import LOOK_AGAIN_SECONDS, WAKE, Broker, Poll, Taken
from tagmill.errors import DatabaseUnavailable
from tagmill_wire.messages import LeaseAnswer, LeasedPartition, LeaseRequest, dump, load
from tests.support.threads import done, in_thread

NOTHING = LeaseAnswer([], {})


class Attempts:
    """The broker's other side: attempts wait here until the test says what they found."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.running: list[tuple[Poll, Deferred[Taken]]] = []
        self.returned: list[str] = []
        self.broker = Broker(self.clock, self._take, self._give_back)
        self.broker.start()

    def _take(self, poll: Poll) -> Deferred[Taken]:
        found: Deferred[Taken] = Deferred()
        poll.asked = load(LeaseRequest, poll.body)
        self.running.append((poll, found))
        return found

    def _give_back(self, poll: Poll, answer: LeaseAnswer) -> Deferred[None]:
        self.returned += [lease.lease for lease in answer.leases]
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done

    def poll(self, name: str, seconds: float = 60, holds: Iterable[int] = ()) -> list[object]:
        """What the poll gets lands in the list."""
        got: list[object] = []
        body = dump(LeaseRequest(name, 1, list(holds)))
        self.deferred = self.broker.poll(Poll("token", body), seconds)
        self.deferred.addBoth(got.append)
        return got

    def park(
        self, name: str, clusters: Iterable[int] | None = None, holds: Iterable[int] = ()
    ) -> list[object]:
        got = self.poll(name, holds=holds)
        self.find_nothing(name, clusters)
        return got

    def find_nothing(self, name: str, clusters: Iterable[int] | None = None) -> None:
        poll, found = self._end(name)
        able = frozenset(clusters) if clusters else None
        found.callback(Taken(NOTHING, able, holds=frozenset(asked(poll).holds)))

    def find(self, name: str, cluster: int = 1) -> LeaseAnswer:
        answer = LeaseAnswer([LeasedPartition(f"lease of {name}", 1, "c", 1, 8, [])], {})
        self._end(name)[1].callback(Taken(answer, None, frozenset({cluster})))
        return answer

    def _end(self, name: str) -> tuple[Poll, Deferred[Taken]]:
        (number,) = (n for n, (poll, _) in enumerate(self.running) if asked(poll).worker == name)
        return self.running.pop(number)

    @property
    def trying(self) -> list[str]:
        return [asked(poll).worker for poll, _ in self.running]


def asked(poll: Poll) -> LeaseRequest:
    assert poll.asked is not None
    return poll.asked


@pytest.fixture
def attempts() -> Attempts:
    return Attempts()


def test_a_poll_is_tried_at_once_and_gets_what_is_there(attempts: Attempts) -> None:
    got = attempts.poll("a")
    assert attempts.trying == ["a"]
    assert got == [attempts.find("a")]
    assert attempts.broker.parked == 0


def test_a_poll_without_wait_is_answered_after_one_attempt(attempts: Attempts) -> None:
    got = attempts.poll("a", seconds=0)
    attempts.find_nothing("a")
    assert got == [NOTHING]


def test_a_parked_poll_is_answered_with_nothing_when_its_time_is_over(attempts: Attempts) -> None:
    got = attempts.park("a")
    assert attempts.broker.parked == 1
    attempts.clock.advance(60)
    assert NOTHING in got
    assert attempts.broker.parked == 0


def test_a_notification_wakes_a_few_polls_and_not_the_herd(attempts: Attempts) -> None:
    for number in range(100):
        attempts.park(f"{number}")
    attempts.broker.work_arrived(1)
    assert attempts.trying == [f"{number}" for number in range(WAKE)]


def test_a_poll_that_got_work_wakes_the_next_and_an_empty_one_ends_the_chain(
    attempts: Attempts,
) -> None:
    for number in range(10):
        attempts.park(f"{number}")
    attempts.broker.work_arrived(1)
    attempts.find("0")
    assert attempts.trying == ["1", "2", "3", "4"]
    attempts.find_nothing("1")
    assert attempts.trying == ["2", "3", "4"]


def test_polls_of_other_clusters_are_not_woken(attempts: Attempts) -> None:
    attempts.park("a", clusters={1})
    attempts.park("b", clusters={2})
    attempts.park("all", clusters=None)
    attempts.broker.work_arrived(2)
    assert attempts.trying == ["b", "all"]


def test_polls_that_hold_the_partition_are_woken_first(attempts: Attempts) -> None:
    for number in range(10):
        attempts.park(f"{number}", holds={100 + number})
    attempts.broker.work_arrived(1, [107])
    assert attempts.trying[0] == "7"


def test_work_that_arrives_during_an_attempt_is_looked_for_again(attempts: Attempts) -> None:
    got = attempts.poll("a")
    attempts.broker.work_arrived(1)
    attempts.find_nothing("a")
    assert attempts.trying == ["a"]
    assert got == [attempts.find("a")]


def test_a_lease_for_a_client_that_left_is_given_back(attempts: Attempts) -> None:
    got = attempts.poll("a")
    attempts.deferred.cancel()
    attempts.find("a")
    assert attempts.returned == ["lease of a"]
    assert isinstance(got[0].value, CancelledError)  # type: ignore[attr-defined]


def test_a_client_that_left_is_not_woken(attempts: Attempts) -> None:
    attempts.park("a")
    attempts.deferred.cancel()
    attempts.broker.work_arrived(1)
    assert attempts.trying == []


def test_an_outage_is_passed_on(attempts: Attempts) -> None:
    got = attempts.poll("a")
    attempts.running.pop()[1].errback(DatabaseUnavailable("down"))
    assert isinstance(got[0].value, DatabaseUnavailable)  # type: ignore[attr-defined]
    assert attempts.broker.parked == 0


def test_lost_notifications_cost_a_few_seconds_and_no_more(attempts: Attempts) -> None:
    for name, clusters in (("a", {1}), ("b", {1}), ("c", {2})):
        attempts.park(name, clusters)
    attempts.clock.advance(LOOK_AGAIN_SECONDS)
    assert attempts.trying == ["a", "c"]


def test_what_is_parked_is_counted_while_polls_come_and_go(
    attempts: Attempts,
) -> None:
    """Metrics are made in another thread than the one that polls are answered in."""
    interval = sys.getswitchinterval()
    is_over = threading.Event()

    def count() -> int:
        times = 0
        while not is_over.is_set():
            assert attempts.broker.parked <= 300
            times += 1
        return times

    for number in range(300):
        attempts.park(f"worker {number}")
    sys.setswitchinterval(1e-6)
    try:
        counting = in_thread(count)
        # The thread has its turn many times while the list changes.
        for number in range(1000):
            attempts.deferred.cancel()
            attempts.park(f"another {number}")
    finally:
        is_over.set()
        sys.setswitchinterval(interval)
    assert done(counting) > 0
    assert attempts.broker.parked == 300


def test_draining_answers_everybody_and_parks_nobody_any_more(attempts: Attempts) -> None:
    parked, tried = attempts.park("a"), attempts.poll("b")
    attempts.broker.drain()
    assert parked == [NOTHING]
    attempts.find_nothing("b")
    assert tried == [NOTHING]
    late = attempts.poll("c")
    attempts.find_nothing("c")
    assert late == [NOTHING]
