"""A worker that starts again with what it kept, against a real server."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

from tagmill.fleet import incarnation
from tagmill.fleet.models import Node, Partition
from tagmill_worker.cache import files, folders
from tests.support.fleet import GPU, put
from tests.system.conftest import System
from tests.system.test_nothing_is_lost import COUNT, DISPLAY, EVALUATORS, NVIDIA


def batches(system: System) -> int:
    """How often the server was asked for one, by its metrics."""
    with urlopen(f"{system.stack.url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    counter = 'tagmill_body_cache_lookups_total{keyspace="batches"'
    return sum(int(float(line.split()[1])) for line in lines if line.startswith(counter))


def kept(cache: Path, evaluator: str) -> bool:
    """Whether all is on the disk as it is in the database, with the images of the kernel."""
    named = str(incarnation.current())
    for partition in Partition.objects.all():
        place = files.Place(cache / "worker-1", named, partition.id)
        found = folders.find(place) if place.folder.exists() else None
        if found is None or not found.chain or found.chain[-1].head.rev != partition.rev:
            return False
        pages = sum(len(item.head.pages) for item in found.chain)
        if evaluator == "kernel" and len(found.images) < pages:
            return False
    return True


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_a_worker_that_starts_again_evaluates_without_one_batch(
    system: System, tmp_path: Path, evaluator: str
) -> None:
    cache = tmp_path / "cache"
    options = ("--evaluator", evaluator)
    system.stack.start_workers(1, *options, cache=cache)
    system.tag("display", DISPLAY)
    system.wait(lambda: system.state("display") == "ready" and kept(cache, evaluator))
    # As hard as it comes.
    system.process("worker-1").kill()
    system.stack.stop_workers()
    before = batches(system)
    assert before > 0
    system.stack.start_workers(1, *options, cache=cache)
    system.tag("nvidia", NVIDIA)
    system.wait(lambda: system.state("nvidia") == "ready")
    assert batches(system) == before
    system.assert_true("display", "nvidia")
    # What changed while it was away comes alone.
    system.stack.stop_workers()
    partition = Partition.objects.order_by("id").first()
    assert partition is not None
    put(Node.objects.filter(partition=partition, deleted_at=None)[0].system_id, xml=GPU)
    before = batches(system)
    system.stack.start_workers(1, *options, cache=cache)
    system.tag("count", COUNT)
    system.wait(lambda: all(system.state(n) == "ready" for n in ("display", "nvidia", "count")))
    # With the lease, or by one request.
    assert batches(system) <= before + 1
    system.assert_true("display", "nvidia", "count")
