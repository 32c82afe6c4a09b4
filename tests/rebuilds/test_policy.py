"""Who is leased how much of what: simulated streams of work, without the database."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import NamedTuple

import pytest

from tagmill.matches.staleness import Stale
from tagmill.work import policy
from tagmill.work.policy import (
    CHANGE,
    DEFINITION,
    LEARNING,
    PREVIEW,
    REBUILD,
    Candidate,
    Kind,
    Speed,
    SpentQuotas,
)

KERNEL = Speed(document=2e-4, evaluation=3e-7)
LXML = Speed(document=1e-5, evaluation=5e-5)
SHARES = {
    PREVIEW: policy.ORDINARY_SHARE,
    CHANGE: policy.REBUILD_SHARE,
    DEFINITION: policy.DEFINITION_SHARE,
}


def candidate(partition: int, kind: Kind, nodes: int = 1024) -> Candidate:
    return Candidate(partition, int(kind), 1, nodes)


class Finished(NamedTuple):
    """How many leases there were, and when the last of them ended."""

    leases: int
    end: float


class Stream:
    """One worker, for which work of these kinds waits at every moment. Its quotas are charged as
    the server does it: `took` is what leases of each kind take."""

    def __init__(self, took: dict[Kind, float]) -> None:
        self.took = took
        self.now = 0.0
        self.until = dict.fromkeys(SHARES, 0.0)
        self.spent: Counter[Kind] = Counter()
        self.order: list[Kind] = []

    def run(self, seconds: float) -> None:
        while self.now < seconds:
            found = [candidate(int(kind), kind) for kind in self.took]
            over = {kind: until > self.now for kind, until in self.until.items()}
            spent = SpentQuotas(over[PREVIEW], over[CHANGE], over[DEFINITION], "")
            _, kind = policy.choose(found, spent)
            took = self.took[kind]
            self.now += took
            self.spent[kind] += took  # type: ignore[assignment]  # seconds, not a count
            self.order.append(kind)
            if kind in SHARES:
                self.until[kind] = max(self.until[kind], self.now + SHARES[kind] * took)

    def share(self, kind: Kind) -> float:
        return self.spent[kind] / self.now


@pytest.mark.parametrize(
    "kinds",
    [
        kinds
        for count in (2, 3, 4)
        for kinds in itertools.combinations((PREVIEW, CHANGE, DEFINITION, REBUILD), count)
    ],
)
def test_no_kind_of_work_starves(kinds: tuple[Kind, ...]) -> None:
    """Also where each lease of another kind takes ten times as long, or a tenth."""
    for slow in (None, *kinds):
        for factor in (0.1, 10):
            took = {kind: 0.02 * (factor if kind == slow else 1) for kind in kinds}
            stream = Stream(took)
            stream.run(60)
            assert min(stream.share(kind) for kind in kinds) > 0.01, (took, stream.spent)
            assert set(stream.order) == set(kinds)


def test_changes_and_definitions_have_their_share_before_forced_rebuilds() -> None:
    stream = Stream(dict.fromkeys((CHANGE, DEFINITION, REBUILD), 0.1))
    stream.run(60)
    assert stream.order[:3] == [CHANGE, DEFINITION, REBUILD]
    assert stream.share(CHANGE) > 0.3
    assert stream.share(DEFINITION) > 0.15
    assert stream.share(REBUILD) > 0.3


@pytest.mark.parametrize("speed", [KERNEL, LXML])
@pytest.mark.parametrize("tags", [1, 8, 500, 5000])
@pytest.mark.parametrize("is_held", [True, False])
def test_nothing_waits_for_more_than_a_second_behind_a_rebuild(
    speed: Speed, tags: int, is_held: bool
) -> None:
    """A lease of any rebuild of 100,000 nodes, of which one worker may take all."""
    waiting = [candidate(n, REBUILD) for n in range(98)]
    held = {item.partition for item in waiting} if is_held else set()
    count = policy.fitting(waiting, tags, speed, held)
    named = policy.part(tags, 1024, speed, is_held=is_held)
    evaluating = count * speed.evaluating(1024, named)
    reading = count * speed.reading(1024, is_held=is_held)
    assert count >= 1 and named
    assert evaluating <= max(
        policy.REBUILD_SECONDS, speed.evaluating(1024, min(tags, policy.MIN_NAMED))
    )
    assert reading + evaluating <= 1
    # And no less than it may: a round trip for each has its price, too.
    assert evaluating + reading > policy.REBUILD_SECONDS / 2 or count == len(waiting)


def test_one_expression_of_one_partition_is_leased_however_long_it_takes() -> None:
    slow = Speed(document=1.0, evaluation=1.0)
    assert policy.fitting([candidate(1, REBUILD), candidate(2, REBUILD)], 5, slow, set()) == 1
    assert policy.part(5, 4096, Speed(0.0, 1.0), is_held=True) == 5
    assert policy.part(50, 4096, Speed(0.0, 1.0), is_held=True) == policy.MIN_NAMED
    assert policy.part(5, 0, slow, is_held=False) == 5
    assert policy.part(5, 4096, None, is_held=False) == 5
    assert policy.fitting([candidate(1, REBUILD)] * 9, 5, None, set()) == 9


def test_a_partition_waits_for_each_kind_of_what_is_stale_in_it() -> None:
    stale = [
        Stale(1, [1], 7),
        Stale(2, [1], None),
        Stale(3, [1], None, is_forced=True),
        Stale(4, [1], None, is_preview=True),
        Stale(5, [1], 7),
        Stale(5, [2], None, is_forced=True),
    ]
    assert policy.kinds(stale) == {
        **{1: CHANGE, 2: DEFINITION, 3: REBUILD, 4: PREVIEW},
        5: CHANGE | REBUILD,
    }


def test_a_lease_for_definitions_leaves_what_was_forced_to_the_next() -> None:
    new, forced, changed = (
        Stale(1, [1], None),
        Stale(1, [2], None, is_forced=True),
        Stale(1, [3], 7),
    )
    assert policy.named([new, forced, changed], DEFINITION, is_held=False) == ([new], DEFINITION)
    assert policy.named([forced, changed], DEFINITION, is_held=False) == (
        [forced, changed],
        REBUILD,
    )
    assert policy.named([new, forced, changed], REBUILD, is_held=False) == (
        [new, forced, changed],
        REBUILD,
    )
    assert policy.named([new, forced, changed], CHANGE, is_held=False) == ([changed], CHANGE)


def test_the_first_of_what_is_stale_are_so_many_expressions_whatever_they_wait_for() -> None:
    stale = [Stale(1, [1, 4, 6], 7), Stale(1, [2, 3], None)]
    assert policy.count(stale) == 5
    assert policy.first(stale, 2) == [Stale(1, [1, 4], 7)]
    assert policy.first(stale, 4) == [stale[0], Stale(1, [2], None)]
    assert policy.first(stale, 9) == stale and policy.first(stale, 0) == []
    previews = [Stale(1, [7, 8, 9], None, is_preview=True)]
    riding, _ = policy.named(
        [Stale(1, list(range(10, 18)), None), *previews], REBUILD, is_held=False
    )
    assert riding[1:] == [previews[0]._replace(expressions=[7, 8])]


def test_previews_have_a_quarter_beside_a_rebuild_of_what_is_held() -> None:
    """Ten clients that never stop, whose definitions take thrice as long as those of a hundred tags
    that are evaluated again; what rides along counts as theirs."""
    waiting = [
        Stale(1, list(range(100)), None, is_forced=True),
        Stale(1, list(range(100, 110)), None, is_preview=True),
    ]
    took, now, spent, until = 1e-3, 0.0, 0.0, 0.0
    found = [candidate(1, PREVIEW | REBUILD)]
    while now < 60:
        quotas = SpentQuotas(until > now, False, False, "")
        _, kind = policy.choose(found, quotas)
        named, kind = policy.named(waiting, kind, is_held=True)
        previewed = 3 * took * sum(len(item.expressions) for item in named if item.is_preview)
        now += previewed + took * sum(len(item.expressions) for item in named if item.is_forced)
        spent += previewed
        if kind == PREVIEW:
            until = now + policy.ORDINARY_SHARE * previewed
    assert 0.15 < spent / now < 0.26


def test_learning_waits_until_there_is_nothing_else() -> None:
    found = [candidate(1, LEARNING), candidate(2, REBUILD)]
    spent = SpentQuotas(True, True, True, "")
    assert policy.choose(found, spent) == (found[1:], REBUILD)
    assert policy.choose(found[:1], spent) == (found[:1], LEARNING)


def finished(changed: list[int], workers: int, tags: int, speed: Speed, *, grain: bool) -> Finished:
    """A fleet whose workers wait for nothing but changes, and hold none of the partitions."""
    free = [0.0] * workers
    left, leases, end = list(changed), 0, 0.0
    while left:
        size = policy.lease_size(len(left), workers, 0)
        if grain:
            size = max(size, policy.changes_together(left, tags, speed))
        now = heapq.heappop(free)
        took = sum(speed.reading(n, is_held=False) + speed.evaluating(n, tags) for n in left[:size])
        end = max(end, now + took)
        heapq.heappush(free, now + took)
        del left[:size]
        leases += 1
    return Finished(leases, end)


@pytest.mark.parametrize("speed", [KERNEL, LXML])
@pytest.mark.parametrize("tags", [1, 8, 500])
@pytest.mark.parametrize("workers", [1, 2, 8, 32])
def test_small_changes_are_not_divided_and_wait_no_longer_than_a_grain_for_that(
    speed: Speed, tags: int, workers: int
) -> None:
    for changed in ([1] * 10, [1] * 400, [1, 1024, 3] * 20, [1024] * 10):
        divided = finished(changed, workers, tags, speed, grain=False)
        together = finished(changed, workers, tags, speed, grain=True)
        assert together.leases <= divided.leases
        assert together.end <= divided.end + policy.GRAIN_SECONDS
        if max(changed) == 1 and (speed is KERNEL or tags == 1):
            assert together.leases <= -(-len(changed) // policy.MAX_CHANGES)
        if min(changed) == 1024:
            assert together == divided


def test_how_quick_a_worker_is_that_says_nothing_is_not_guessed() -> None:
    assert policy.changes_together([1] * 100, 8, None) == 0
    assert policy.changes_together([], 8, KERNEL) == policy.MAX_CHANGES
