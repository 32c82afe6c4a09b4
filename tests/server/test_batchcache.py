"""Batch bodies are computed once, kept within bounds, and never kept when they failed."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from api.server.batchcache import OVERHEAD, BatchCache


class Source:
    def __init__(self) -> None:
        self.computing: list[Deferred[bytes]] = []

    def __call__(self) -> Deferred[bytes]:
        self.computing.append(Deferred())
        return self.computing[-1]


def got(deferred: Deferred[bytes]) -> list[object]:
    found: list[object] = []
    deferred.addBoth(found.append)
    return found


def test_two_who_ask_at_once_share_one_computation() -> None:
    cache, source = BatchCache(10_000), Source()
    first, second = got(cache.get("key", source)), got(cache.get("key", source))
    assert len(source.computing) == 1
    source.computing[0].callback(b"body")
    assert first == second == [b"body"]


def test_a_body_is_computed_once() -> None:
    cache, source = BatchCache(10_000), Source()
    cache.get("key", source)
    source.computing[0].callback(b"body")
    assert got(cache.get("key", source)) == [b"body"]
    assert len(source.computing) == 1


def test_the_least_recently_used_body_goes_first() -> None:
    body = b"x" * 1000
    cache = BatchCache(2 * (len(body) + OVERHEAD))
    for key in ("a", "b"):
        source = Source()
        cache.get(key, source)
        source.computing[0].callback(body)
    cache.get("a", Source())
    third = Source()
    cache.get("c", third)
    third.computing[0].callback(body)
    again = {key: Source() for key in "abc"}
    for key in ("a", "c", "b"):
        cache.get(key, again[key])
    assert [len(again[key].computing) for key in "abc"] == [0, 1, 0]
    assert cache.size <= 2 * (len(body) + OVERHEAD)


def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    cache, source = BatchCache(10_000), Source()
    first, second = got(cache.get("key", source)), got(cache.get("key", source))
    source.computing[0].errback(ValueError("no"))
    assert all(isinstance(item[0].value, ValueError) for item in (first, second))  # type: ignore[attr-defined]
    cache.get("key", source)
    assert len(source.computing) == 2


def test_one_who_leaves_takes_nothing_from_the_others() -> None:
    cache, source = BatchCache(10_000), Source()
    leaving = cache.get("key", source)
    staying = got(cache.get("key", source))
    left = got(leaving)
    leaving.cancel()
    source.computing[0].callback(b"body")
    assert staying == [b"body"]
    assert left


def test_a_size_of_zero_keeps_nothing() -> None:
    cache, source = BatchCache(0), Source()
    cache.get("key", source)
    source.computing[0].callback(b"body")
    cache.get("key", source)
    assert len(source.computing) == 2
