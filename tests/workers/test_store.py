from __future__ import annotations

from twisted.internet.task import Clock

from api.problems import RETRY_AFTER_SECONDS
from tagmill_worker.backoff import Backoff
from tagmill_worker.pages import Page
from tagmill_worker.store import IDLE_SECONDS, PAGE_OVERHEAD, Store

SIZE = 1000 + PAGE_OVERHEAD


def page(partition: int, rev: int, size: int = 1000) -> Page:
    return Page(partition, rev, None, size == 0, b"x" * size)


def test_a_full_store_keeps_what_it_has_and_lets_newcomers_pass() -> None:
    store = Store(3 * SIZE, Clock().seconds)
    admitted = [store.admit(key, [page(key, 1)]) for key in range(5)]
    assert admitted == [True, True, True, False, False]
    assert store.partitions() == [0, 1, 2]
    assert store.size == 3 * SIZE


def test_images_not_leased_for_long_make_room() -> None:
    clock = Clock()
    store = Store(2 * SIZE, clock.seconds)
    store.admit(1, [page(1, 1)])
    store.admit(2, [page(2, 1)])
    clock.advance(IDLE_SECONDS)
    store.get(2)
    clock.advance(1)
    assert store.admit(3, [page(3, 1)])
    assert store.partitions() == [2, 3]


def test_an_image_takes_the_rev_of_the_first_page() -> None:
    store = Store(10 * SIZE, Clock().seconds)
    store.admit(1, [page(1, 5), page(1, 9)])
    image = store.get(1)
    assert image is not None and image.rev == 5
    store.apply(1, [page(1, 12, 10), page(1, 14, 10)])
    assert image.rev == 12
    assert len(image.pages) == 4


def test_an_empty_delta_raises_the_rev_and_takes_no_room() -> None:
    store = Store(10 * SIZE, Clock().seconds)
    store.admit(1, [page(1, 5)])
    store.apply(1, [page(1, 8, 0)])
    image = store.get(1)
    assert image is not None and image.rev == 8
    assert store.size == SIZE


def test_an_image_that_outgrows_the_store_is_dropped() -> None:
    store = Store(2 * SIZE, Clock().seconds)
    store.admit(1, [page(1, 1)])
    store.apply(1, [page(1, 2, 2000)])
    assert store.partitions() == []
    assert store.size == 0


def test_delays_double_up_to_a_ceiling_and_start_again_after_a_success() -> None:
    backoff = Backoff(1, 8, uniform=lambda low, high: high)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 8, 8]
    backoff.reset()
    assert backoff.next(retry_after=10) == 11


def test_the_end_of_an_outage_is_noticed_within_five_seconds_however_long_it_was() -> None:
    backoff = Backoff(uniform=lambda low, high: high)
    assert max(backoff.next(RETRY_AFTER_SECONDS) for _ in range(100)) <= 5


def test_delays_are_drawn_from_the_whole_range() -> None:
    backoff = Backoff(1, 8, uniform=lambda low, high: low)
    assert [backoff.next() for _ in range(3)] == [0, 0, 0]
