"""Bodies are built once for all who ask, kept within bounds, and never kept when they failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from api.cache import Asked, Bodies, Built, Entry, Name
from api.cache.bodies import built
from api.cache.entry import GZIP, IDENTITY, MAX_UNPACKED, ZSTD
from api.cache.store import OVERHEAD, Store

EXACT, STATUS = "tag_nodes", "tags"
BODY = b"x" * 100


class Threads:
    """Builds wait here until the test ends them; what else is called is answered at once."""

    def __init__(self) -> None:
        self.building: list[Deferred[Any]] = []

    def call(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        waiting: Deferred[Any] = Deferred()
        if function is built:
            self.building.append(waiting)
        else:
            waiting.callback(function(*args))
        return waiting

    def built(self, entry: Entry) -> None:
        self.building.pop(0).callback((entry, 0.5))

    def failed(self, error: Exception) -> None:
        self.building.pop(0).errback(error)


class Client:
    """Asks one cache, and says what came."""

    def __init__(self, most: int = 100_000) -> None:
        self.threads = Threads()
        self.clock = Clock()
        self.bodies = Bodies(self.clock, most, lifetime=5.0)

    def ask(
        self, revision: str = "1", *, keyspace: str = EXACT, subject: str = "gpu", **asked: Any
    ) -> tuple[Deferred[Entry], list[Any]]:
        name = Name(keyspace, subject, "page", revision)
        coroutine = self.bodies.get(Asked(name, **asked), lambda: BUILT, self.threads)
        waiting = Deferred.fromCoroutine(coroutine)
        found: list[Any] = []
        return waiting.addBoth(found.append), found

    def asked(self, revision: str = "1", **asked: Any) -> list[Any]:
        return self.ask(revision, **asked)[1]

    def kept(self, revision: str = "1", **asked: Any) -> bool:
        """Whether it is answered without a build, which is not counted on."""
        builds = len(self.threads.building)
        self.asked(revision, **asked)
        if len(self.threads.building) == builds:
            return True
        self.threads.failed(ValueError())
        return False

    @property
    def counts(self) -> tuple[int, int, int, int]:
        found = self.bodies.counts.by_keyspace
        sums = [
            sum(getattr(tally, name) for tally in found.values())
            for name in ("lookups", "hits", "misses", "coalesced")
        ]
        return sums[0], sums[1], sums[2], sums[3]


BUILT = Entry.of(BODY)


@pytest.fixture
def client() -> Client:
    return Client()


def test_all_who_ask_at_once_share_one_build(client: Client) -> None:
    waiting = [client.asked() for _ in range(100)]
    assert len(client.threads.building) == 1
    client.threads.built(BUILT)
    assert waiting == [[BUILT]] * 100
    assert client.asked() == [BUILT]
    assert client.counts == (101, 1, 1, 99)


def test_a_body_that_was_built_already_is_kept_and_who_waits_for_another_one_gets_that(
    client: Client,
) -> None:
    name = Name(EXACT, "gpu", "page", "1")

    def ready(entry: Entry) -> Deferred[Entry]:
        given = client.bodies.get(Asked(name), Built(entry, 0.5), client.threads)
        return Deferred.fromCoroutine(given)

    assert not client.bodies.may_have(name)
    assert ready(BUILT).result is BUILT and client.bodies.may_have(name)
    assert client.asked() == [BUILT] and client.counts == (2, 1, 1, 0)
    client.bodies.store.drop()
    first = client.asked()
    assert client.bodies.may_have(name)
    second = ready(Entry.of(b"as good"))
    client.threads.built(BUILT)
    assert first == [BUILT] and second.result is BUILT


def test_a_newer_revision_drops_the_one_before(client: Client) -> None:
    client.asked("1")
    client.threads.built(BUILT)
    size = client.bodies.store.size
    client.asked("2")
    assert client.bodies.store.size == 0
    client.threads.built(BUILT)
    assert client.bodies.store.size == size
    assert not client.kept("1")


def test_a_body_that_is_newer_than_was_asked_for_is_kept_under_its_own_revision(
    client: Client,
) -> None:
    client.asked("1")
    newer = Entry.of(b"newer", revision="2")
    client.threads.built(newer)
    assert client.asked("2") == [newer]
    assert not client.kept("1")


def test_a_failure_reaches_all_who_wait_and_is_not_kept(client: Client) -> None:
    first, second = client.asked(), client.asked()
    client.threads.failed(ValueError("no"))
    assert all(isinstance(found[0].value, ValueError) for found in (first, second))
    assert not client.kept()
    lookups, hits, misses, coalesced = client.counts
    assert lookups == hits + misses + coalesced == 3


def test_one_who_leaves_takes_nothing_from_the_others(client: Client) -> None:
    leaving, left = client.ask()
    staying = client.asked()
    leaving.cancel()
    client.threads.built(BUILT)
    assert staying == [BUILT]
    assert left
    assert client.kept()


def test_a_status_is_built_for_each_request_that_allows_no_age(client: Client) -> None:
    """Who asks while one is read waits for the next: what is read began before the question."""
    first, second, third = (client.asked(keyspace=STATUS, now=10.0) for _ in range(3))
    old, new = Entry.of(b"old", born=10.0), Entry.of(b"new", born=10.1)
    client.threads.built(old)
    assert (first, second, third) == ([old], [], [])
    client.threads.built(new)
    assert second == third == [new]
    assert not client.threads.building
    assert client.counts == (3, 0, 2, 1)


def test_a_status_is_kept_as_long_as_the_request_and_the_server_allow(client: Client) -> None:
    client.asked(keyspace=STATUS, now=10.0, max_age=60.0)
    client.threads.built(Entry.of(BODY, born=10.0))

    def kept(now: float, max_age: float) -> bool:
        return client.kept(keyspace=STATUS, now=now, max_age=max_age)

    assert kept(12.0, 2.0)
    assert not kept(12.1, 2.0)
    assert kept(13.7, 60.0)
    # The server's five seconds, of which a quarter is drawn.
    assert not kept(15.1, 60.0)
    # A clock that was set back makes nothing young.
    assert not kept(5.0, 60.0)


def test_whoever_allows_less_does_not_get_what_another_was_content_with(client: Client) -> None:
    first = client.asked(keyspace=STATUS, now=10.0, max_age=9.0)
    second = client.asked(keyspace=STATUS, now=13.0, max_age=1.0)
    old, new = Entry.of(b"old", born=10.0), Entry.of(b"new", born=13.1)
    client.threads.built(old)
    client.threads.built(new)
    assert (first, second) == ([old], [new])


def test_what_is_switched_off_is_built_and_not_counted(client: Client) -> None:
    for _ in range(2):
        found = client.asked(is_off=True)
        client.threads.built(BUILT)
        assert found == [BUILT]
    assert client.counts == (0, 0, 0, 0)


@pytest.mark.parametrize("coding", [GZIP, IDENTITY, ZSTD])
def test_a_body_is_packed_once_in_each_coding(client: Client, coding: str) -> None:
    entry = Entry.of(BODY * 10)
    first = client.asked(coding=coding)
    client.threads.built(entry)
    (found,) = first
    assert found.coding == coding
    assert b"".join(found.pieces()) == (BODY * 10 if coding != GZIP else found.body)
    (again,) = client.asked(coding=coding)
    assert again.body is found.body


def test_a_large_body_is_kept_packed_alone_and_unpacked_in_pieces(client: Client) -> None:
    plain = bytes(range(256)) * (MAX_UNPACKED // 256 + 1)
    entry = Entry.of(plain)
    found = client.asked(coding=IDENTITY)
    client.threads.built(entry)
    assert found == [entry]
    pieces = list(entry.pieces())
    assert b"".join(pieces) == plain
    assert max(map(len, pieces)) <= 65_536


def test_what_is_too_large_is_left_out_and_counted() -> None:
    client = Client(2000)
    client.asked()
    client.threads.built(BUILT)
    assert not client.kept()
    assert client.bodies.counts.by_keyspace[EXACT].oversize == 1


def test_a_size_of_zero_keeps_nothing() -> None:
    client = Client(0)
    client.asked()
    client.threads.built(BUILT)
    assert not client.kept()
    assert client.bodies.counts.by_keyspace[EXACT].oversize == 0


def a_name(subject: int, revision: str = "1") -> Name:
    return Name(EXACT, str(subject), "", revision)


def test_a_scan_does_not_sweep_away_what_many_ask_for() -> None:
    """Twenty that are asked for again and again, and a thousand that are read once."""
    evicted: list[int] = []
    store = Store(50 * (len(BODY) + OVERHEAD), lambda _, size: evicted.append(size))
    entry = Entry.of(BODY)
    wanted = [a_name(number) for number in range(20)]
    for name in wanted:
        store.put(name, entry)
        store.get(name)
    for number in range(1000):
        store.put(a_name(1000 + number), entry)
        if number % 10 == 0:
            for name in wanted:
                store.get(name)
        assert store.size <= 50 * (len(BODY) + OVERHEAD)
    assert all(store.get(name) for name in wanted)
    assert sum(evicted) == 1020 * (len(entry.body) + OVERHEAD) - store.size


def test_what_comes_back_soon_stays() -> None:
    """It was evicted a moment ago, and is asked for again: it is no scan's."""
    store = Store(10 * (len(BODY) + OVERHEAD), lambda *_: None)
    entry = Entry.of(BODY)
    for number in range(11):
        store.put(a_name(number), entry)
    assert store.get(a_name(0)) is None
    store.put(a_name(0), entry)
    for number in range(100, 130):
        store.put(a_name(number), entry)
    assert store.get(a_name(0)) is entry


def test_dropping_gives_the_memory_back() -> None:
    store = Store(100_000, lambda *_: None)
    for keyspace in ("tag_nodes", "nodes"):
        for subject in ("gpu", "ssd"):
            store.put(Name(keyspace, subject, "", "1"), BUILT)
    one = len(BUILT.body) + OVERHEAD
    store.drop(subject="gpu")
    assert (store.size, store.entries["nodes"]) == (2 * one, 1)
    store.drop("nodes")
    assert (store.size, store.sizes["nodes"]) == (one, 0)
    store.drop()
    assert (store.size, sum(store.entries.values())) == (0, 0)
