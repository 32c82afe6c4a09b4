"""Bodies in Redis, by Django's backend: shared, and never wrong whatever happens to the server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from django.core.cache import BaseCache
from django.core.cache.backends.redis import RedisCache

from api.cache.entry import Entry, Name, sealed
from api.cache.shared import Shared
from tagmill import caches
from tagmill.config import Config
from tests.support.daemon import seconds_frozen
from tests.support.redis import Redis

SECRET = b"of these servers"
ITEM_BYTES = 1_000_000
PATIENCE, LONG = 0.25, 10.0
READERS, SUBJECTS = 3, 5


@pytest.fixture(scope="module")
def started() -> Iterator[Redis]:
    # The least that Redis starts with, and a little: bodies are evicted.
    server = Redis("--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
    yield server
    server.stop()


@pytest.fixture
def server(started: Redis) -> Redis:
    started.client.config_set("maxmemory-policy", "allkeys-lru")
    started.client.flushall()
    return started


def opened(server: Redis, seconds: float = LONG) -> Callable[[], BaseCache]:
    """As TAGMILL_BODY_CACHE_URL has it."""
    config = Config(body_cache_url=server.url, cache_server_seconds=seconds)
    found = caches.django_settings(config)["bodies"]
    assert found["BACKEND"].endswith("RedisCache")
    made = RedisCache(found["LOCATION"], {key: found[key] for key in ("KEY_PREFIX", "OPTIONS")})
    return lambda: made


def host(server: Redis, seconds: float = LONG) -> Shared:
    return Shared(ITEM_BYTES, SECRET, opened(server, seconds))


def name(number: int = 1, revision: str = "1") -> Name:
    return Name("tag_nodes", str(number), "", revision)


def entry(text: str = "body") -> Entry:
    return Entry.of(text.encode())


def taken(of: Shared, wanted: Name) -> tuple[Entry | None, bool]:
    return of.take(wanted, lambda _: True)


def test_one_builds_and_the_others_take_it(server: Redis) -> None:
    here, there = host(server), host(server)
    assert taken(here, name()) == (None, True)
    assert taken(there, name()) == (None, False)
    here.put(name(), entry(), name())
    assert taken(there, name()) == (entry(), False)
    assert taken(there, name(revision="2")) == (None, True)
    # Bytes as they are: nothing is pickled, and everything ends by itself.
    ((key, data),) = [item for item in server.contents().items() if b"lease" not in item[0]]
    assert data == sealed(name(), entry(), SECRET)
    assert 0 < int(server.client.ttl(key)) <= 3600


def test_what_another_wrote_or_what_is_damaged_is_a_miss(server: Redis) -> None:
    of = host(server)
    of.put(name(1), entry("one"), name(1))
    (key,) = server.contents()
    for data in (server.client.get(key)[:-1] + b"?", b"", b"7", b"\x80\x04N."):
        server.client.set(key, data)
        assert taken(of, name(1)) == (None, True)
        of.release(name(1))


def test_a_server_that_is_full_and_evicts_nothing_is_only_slower(server: Redis) -> None:
    server.client.config_set("maxmemory-policy", "noeviction")
    of, large = host(server), Entry(bytes(range(256)) * 2048, "", 1 << 19)
    for number in range(10):
        of.put(name(number), large, name(number))
    assert 0 < len(server.contents()) < 10
    assert taken(of, name(99))[0] is None
    server.client.config_set("maxmemory-policy", "allkeys-lru")


def test_a_frozen_server_costs_three_waits_and_one_that_comes_back_is_used() -> None:
    server = Redis()
    try:
        of = host(server, PATIENCE)
        of.put(name(), entry(), name())
        assert seconds_frozen(server, lambda number: taken(of, name(number))[0]) < 10 * PATIENCE
        # A process that has not left it out.
        assert taken(host(server), name()) == (entry(), False)
    finally:
        server.stop()


def test_readers_never_see_old_or_torn_bodies_while_it_evicts_and_restarts(
    server: Redis,
) -> None:
    """With what it had before, too; the truth is a counter for each subject."""
    reads = int(os.environ.get("TAGMILL_RACE_READS", "600"))
    truth, lock, stop = [0] * SUBJECTS, threading.Lock(), threading.Event()
    wrong: list[object] = []
    done, hits, restarts = [0], [0], [0]

    def text(subject: int, revision: int) -> str:
        return f"{subject} {revision} " + "x" * 50_000 * (1 + revision % 3)

    def read(number: int) -> None:
        of = host(server, PATIENCE)
        while not stop.is_set():
            subject = (number + done[0]) % SUBJECTS
            asked = truth[subject]
            found, _ = taken(of, name(subject, str(asked)))
            with lock:
                hits[0] += found is not None
                done[0] += 1
            if found is None:
                newest = truth[subject]
                made = Entry(text(subject, newest).encode(), "", 0)
                of.put(name(subject, str(newest)), made, name(subject, str(asked)))
            elif found.body != text(subject, asked).encode():
                wrong.append((subject, asked, found.body[:20]))

    def write() -> None:
        while not stop.wait(0.005):
            truth[done[0] % SUBJECTS] += 1

    work = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    work.append(threading.Thread(target=write))
    for thread in work:
        thread.start()
    end = time.monotonic() + max(30.0, reads / 100)
    before = server.contents()
    try:
        while done[0] < reads and time.monotonic() < end:
            if done[0] > reads * (restarts[0] + 1) // 4:
                before, old = server.contents(), before
                server.restart(old)
                restarts[0] += 1
            stop.wait(0.001)
    finally:
        stop.set()
        for thread in work:
            thread.join()
    # `make race` shows it.
    print(f"\nin Redis: {done[0]} reads, {hits[0]} hits, {sum(truth)} writes, {len(wrong)} wrong")
    assert (wrong, done[0] >= reads) == ([], True)
    assert hits[0] > 0 and restarts[0] > 0
