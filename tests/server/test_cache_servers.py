"""Cache servers that are off, slow, evicting, mixed up or old make it slower, never wrong: against
real memcached processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import BaseCache
from django.core.cache.backends.memcached import PyMemcacheCache
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from api.cache import Asked, Bodies
from api.cache.entry import Entry, Name, opened, sealed
from api.cache.shared import Shared
from tagmill import cache_members, caches
from tagmill.breaker import LONGEST_PAUSE_SECONDS, Breaker
from tagmill.cache_members import LOOK_UP_SECONDS, Members
from tagmill.config import Config
from tagmill.errors import ConfigurationError
from tagmill.local_first import LocalFirstCache
from tests.support.daemon import seconds_frozen
from tests.support.memcached import Memcached, Relay
from tests.support.race import Race
from tests.support.threads import until

SECRET = b"of these servers"
ITEM_BYTES = 1_000_000
# A round trip to a remote one, half of it each way.
WAY_SECONDS = 0.01
# For those that are frozen; the others are waited for, however busy the machine is.
PATIENCE, LONG = 0.25, 10.0


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Memcached]]:
    made = [Memcached() for _ in range(3)]
    yield made
    for server in made:
        server.stop()


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> None:
    if "servers" in request.fixturenames:
        for server in request.getfixturevalue("servers"):
            # `flush_all` also forgets what is stored in the second after it.
            server.restart({})


def name(number: int = 1, revision: str = "1") -> Name:
    return Name("tag_nodes", str(number), "", revision)


def entry(text: str = "body") -> Entry:
    return Entry.of(text.encode())


def plain(server: Memcached, seconds: float = LONG) -> Callable[[], BaseCache]:
    """Django's own, as TAGMILL_BODY_CACHE_URL has it."""
    url = f"memcached://{server.place}"
    found = caches.django_settings(Config(body_cache_url=url, cache_server_seconds=seconds))
    made = PyMemcacheCache(found["bodies"]["LOCATION"], found["bodies"])
    return lambda: made


def local_first(*places: str, seconds: float = LONG) -> LocalFirstCache:
    options = {"members": Members(",".join(places), seconds)}
    return LocalFirstCache("", {"OPTIONS": options, "KEY_PREFIX": "tagmill"})


def shared(cache: BaseCache) -> Shared:
    return Shared(ITEM_BYTES, SECRET, lambda: cache)


def taken(of: Shared, wanted: Name) -> tuple[Entry | None, bool]:
    return of.take(wanted, lambda _: True)


def test_one_builds_and_the_others_take_it(servers: list[Memcached]) -> None:
    here, there = (Shared(ITEM_BYTES, SECRET, plain(servers[0])) for _ in range(2))
    assert taken(here, name()) == (None, True)
    assert taken(there, name()) == (None, False)
    here.put(name(), entry(), name())
    assert taken(there, name()) == (entry(), False)
    # Another revision is another body.
    assert taken(there, name(revision="2")) == (None, True)


def test_a_newer_body_lets_those_go_who_wait_for_the_one_before(servers: list[Memcached]) -> None:
    here, there = (Shared(ITEM_BYTES, SECRET, plain(servers[0])) for _ in range(2))
    taken(here, name())
    here.put(name(revision="2"), entry(), name())
    assert taken(there, name()) == (None, True)


def test_what_is_evicted_or_was_not_built_is_anothers_to_build_at_once(
    servers: list[Memcached],
) -> None:
    made = plain(servers[0])(), local_first(*(server.place for server in servers))
    for number, cache in enumerate(made):
        of, first, second = shared(cache), name(10 + number), name(20 + number)
        assert taken(of, first) == (None, True)
        of.put(first, entry(), first)
        cache.delete(first.key)
        # What is there and too old is as good as nothing.
        assert of.take(first, lambda _: False) == (None, True)

        def fails() -> Entry:
            raise ValueError

        bodies = Bodies(Clock(), 100_000, shared=of)
        failing = Deferred.fromCoroutine(bodies.get(Asked(second), fails, AtOnce()))
        failing.addErrback(lambda failure: failure.trap(ValueError))
        assert taken(of, second) == (None, True)


class AtOnce:
    """In place of threads."""

    def call(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        return maybeDeferred(function, *args)


@pytest.mark.parametrize(
    "found",
    [
        sealed(name(2), entry(), SECRET),
        sealed(name(), entry(), b"of others"),
        sealed(name(), entry(), SECRET)[:-1],
        sealed(name(), entry(), SECRET) + b"x",
        b"x" * 100,
        b"",
        "text",
        7,
    ],
    ids=["another name", "another secret", "cut", "longer", "noise", "empty", "text", "number"],
)
def test_what_is_not_ours_is_not_believed(found: Any) -> None:
    assert opened(name(), found, SECRET) is None


def test_a_server_that_gives_others_bytes_is_a_miss(servers: list[Memcached]) -> None:
    of = Shared(ITEM_BYTES, SECRET, plain(servers[0]))
    of.put(name(1), entry("one"), name(1))
    key = plain(servers[0])().make_key(name(1).key)
    with servers[0].client() as client:
        data = client.get(key)
        client.set(plain(servers[0])().make_key(name(2).key), data)
        client.set(key, data[:-1] + b"?")
    assert taken(of, name(1))[0] is None
    assert taken(of, name(2))[0] is None


@pytest.mark.parametrize("item_bytes", [ITEM_BYTES, 100_000_000])
def test_what_is_too_large_is_left_out_and_nobody_waits_for_it(
    servers: list[Memcached], item_bytes: int
) -> None:
    """By our own limit, and by the server's, where ours is wrong."""
    large = Entry(bytes(range(256)) * 8192, "", 1 << 21)
    for cache in (plain(servers[0])(), local_first(*(server.place for server in servers))):
        of = Shared(item_bytes, SECRET, lambda cache=cache: cache)
        assert taken(of, name()) == (None, True)
        of.put(name(), large, name())
        for _ in range(2):
            assert taken(of, name()) == (None, True)


def test_a_server_that_freezes_is_left_out_and_tried_again_by_one() -> None:
    """By a clock of the test's own."""
    now = 0.0
    breaker = Breaker("it", lambda: now)
    for _ in range(20):
        assert breaker.may_call() is (not breaker.is_left_out)
        breaker.failed(TimeoutError())
    pauses = []
    for _ in range(8):
        began = now
        while not breaker.may_call():
            now += 0.25
        # The others go on without it.
        assert not breaker.may_call()
        pauses.append(now - began)
        breaker.failed(TimeoutError())
    assert pauses == [1, 2, 4, 8, 16, 30, 30, LONGEST_PAUSE_SECONDS]
    now += LONGEST_PAUSE_SECONDS
    assert breaker.may_call()
    breaker.succeeded()
    assert breaker.may_call()
    assert breaker.may_call()


@pytest.mark.parametrize("is_local_first", [False, True])
def test_a_frozen_server_costs_three_waits(is_local_first: bool) -> None:
    server = Memcached()
    try:
        local = local_first(server.place, seconds=PATIENCE)
        cache = local if is_local_first else plain(server, PATIENCE)()
        of = shared(cache)
        of.put(name(), entry(), name())
        assert seconds_frozen(server, lambda number: taken(of, name(number))[0]) < 10 * PATIENCE
    finally:
        server.stop()


def test_it_reads_the_local_one_then_the_others_and_keeps_what_it_found(
    servers: list[Memcached],
) -> None:
    places = [server.place for server in servers]
    # Each host has its own first.
    hosts = [local_first(*places[n:], *places[:n]) for n in range(3)]
    keys = [f"k{number}" for number in range(20)]

    def copies(server: Memcached) -> int:
        with server.client() as client:
            return len(client.get_many([hosts[0].make_key(key) for key in keys]))

    for key in keys:
        hosts[0].set(key, b"v")
    own, second, third = map(copies, servers)
    assert (own, second + third) == (20, 20)
    assert min(second, third) > 0
    for host in hosts:
        assert [host.get(key) for key in keys] == [b"v"] * 20
    assert [copies(server) for server in servers] == [20] * 3
    # From now on nobody but the own one is asked.
    before = [server.count("cmd_get") for server in servers]
    assert hosts[1].get("k1") == b"v"
    after = [server.count("cmd_get") for server in servers]
    assert [new - old for old, new in zip(before, after, strict=True)] == [0, 1, 0]


def test_a_local_hit_is_ten_times_as_fast_as_a_remote_one(servers: list[Memcached]) -> None:
    relays = [Relay(server.port, WAY_SECONDS) for server in servers[1:]]
    host = local_first(servers[0].place, *(relay.place for relay in relays))
    far = local_first(*(relay.place for relay in relays))
    value = b"x" * 20_000
    host.set("k", value)
    far.set("k", value)

    def fastest(cache: LocalFirstCache) -> float:
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            assert cache.get("k") == value
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    assert fastest(far) > 10 * fastest(host)
    for relay in relays:
        relay.close()


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_every_write_is_taken_while_a_member_is_dead(servers: list[Memcached], dead: int) -> None:
    places = [server.place for server in servers]
    host = local_first(*places)
    servers[dead].stop()
    try:
        for number in range(50):
            host.set(f"k{number}", b"v")
            assert host.add(f"l{number}", b"v")
            assert host.get(f"k{number}") == b"v"
    finally:
        servers[dead].start()


def test_members_come_and_go_by_a_file_or_a_name(servers: list[Memcached], tmp_path: Path) -> None:
    listed = tmp_path / "members"
    listed.write_text(f"{servers[1].place}\n")
    resolved: list[list[tuple[str, int]]] = [[("127.0.0.1", servers[2].port)]]
    now = 0.0

    def look_up(host: str, port: int) -> list[tuple[str, int]]:
        if not resolved:
            raise OSError("no such name")
        return resolved.pop()

    text = f"{servers[0].place}, file:{listed}, dns:caches.example:11211"
    members = Members(text, PATIENCE, look_up, lambda: now)

    def names() -> set[str]:
        return {member.name for member in members.ordered("k")}

    assert names() == {server.place for server in servers}
    order = [member.name for member in members.others("k")]
    # A look-up that fails keeps what the last one found.
    listed.write_text("nonsense:x\n")
    members.refresh()
    assert [member.name for member in members.others("k")] == order
    listed.write_text("")
    members.refresh()
    assert names() == {servers[0].place, servers[2].place}
    assert [member.name for member in members.ordered("k") if member.name in order] == [
        name for name in order if name != servers[1].place
    ]
    local = members.local()
    assert local is not None
    assert local.name == servers[0].place
    # Servers look up by themselves, in a thread of its own.
    resolved.append([])
    now += LOOK_UP_SECONDS
    until(lambda: names() == {servers[0].place}, "the name has no address any more")


@pytest.mark.parametrize("text", ["host:port", "http://x:1", ":11211", "h:0", "dns:", "a b"])
def test_a_list_that_is_wrong_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ConfigurationError, match="TAGMILL_CACHE_SERVERS"):
        caches.django_settings(Config(cache_servers=text))
    assert cache_members.parsed("[::1]:5") == ("::1", 5)
    assert cache_members.parsed("host") == ("host", 11211)


def test_two_ways_to_share_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="unset"):
        caches.django_settings(Config(cache_servers="a", body_cache_url="memcached://b"))


def test_a_value_written_while_a_member_was_away_is_never_old_again(
    servers: list[Memcached],
) -> None:
    """The known failure of caches that write to all members: one is stopped, a value is written,
    it comes back with what it had. A key that is written again then gives the old value; a name
    that holds a revision cannot."""
    places = [server.place for server in servers]
    hosts = [local_first(*places[n:], *places[:n]) for n in range(3)]
    of = [shared(host) for host in hosts]
    mutable = "gpu"
    for host in hosts:
        host.set(mutable, b"old")
    of[0].put(name(revision="1"), entry("old"), name(revision="1"))
    taken(of[2], name(revision="1"))
    before = servers[2].contents()
    servers[2].stop()
    hosts[0].set(mutable, b"new")
    of[0].put(name(revision="2"), entry("new"), name(revision="2"))
    servers[2].restart(before)
    assert hosts[2].get(mutable) == b"old"
    for one in of:
        found, _ = taken(one, name(revision="2"))
        assert found == entry("new")


def test_readers_never_see_old_or_torn_bodies_whatever_happens_to_the_servers(
    tmp_path: Path,
) -> None:
    """They are frozen, emptied, full, restarted with old content; members come and go."""
    reads = int(os.environ.get("TAGMILL_RACE_READS", "3000"))
    found = Race(reads, reads / 100, tmp_path / "members").run()
    # `make race` shows it.
    print(f"\n{found}")
    assert (found.stale, found.torn) == (0, 0)
    assert found.reads >= reads
    assert found.hits > 0
    assert found.disturbances > 0
