"""What `bench churn` sees of workers that come and go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.bench import BenchError, Session
from loadtest.benches.churn import ChurnBench, _Moves
from tagmill.fleet import clusters
from tagmill.work import membership
from tagmill.work.models import Worker
from tagmill_wire.messages import ShareRequest
from tests.support.fleet import stale_partitions
from tests.support.workers import a_worker


def told(worker: Worker, room: int) -> None:
    membership.share(worker, ShareRequest(str(worker.uuid), room, ready=True))


@pytest.mark.django_db
def test_each_change_of_the_membership_is_seen_once(configure: Callable[..., None]) -> None:
    configure(partition_slots=8)
    clusters.create("north")
    stale_partitions(20)
    moves, workers = _Moves(), [a_worker(name=str(number)) for number in range(3)]
    for worker in workers:
        told(worker, 2**30)
        moves.look()
        moves.look()
    told(workers[0], 0)
    moves.look()
    # The first one took everything from nobody.
    assert moves.found[:2] == [(10 / 20, 1 / 2), (6 / 20, 1 / 3)]
    assert len(moves.found) == 3
    share, part = moves.found[2]
    assert part == 1 / 3
    assert share <= part + 0.05


@pytest.mark.parametrize(
    ("name", "value"), [("workers", 1), ("workers", 17), ("seconds", 0.0), ("uploads", -1.0)]
)
def test_what_cannot_be_measured_is_refused(name: str, value: float) -> None:
    good = {"nodes": 1, "workers": 2, "seconds": 1.0, "every": 1.0, "uploads": 1.0}
    with pytest.raises(BenchError, match=f"--{name} is"):
        ChurnBench().run({**good, name: value}, Session(Console(), "", Path()))
