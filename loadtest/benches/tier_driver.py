"""A part of `bench tiers`, in a process with a reactor. The tier, the client and the flusher are a
worker's own."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import OrderedDict
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tagmill_wire import images
from tagmill_worker import pages
from tagmill_worker.cache import bundle, files, folders, start
from tagmill_worker.cache.files import Place
from tagmill_worker.cache.flushing import Flusher, Watermarks
from tagmill_worker.cache.shared import Shared
from tagmill_worker.cache.tier import Tier
from tagmill_worker.client import Client
from tagmill_worker.evaluators import base, saved
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page
from tagmill_worker.settings import Settings, load

Asked = dict[str, Any]
KERNEL = "kernel"
MAX_PARTITIONS = 40
ROUNDS = 4
READINGS = 5
BATCH_NODES, BATCH_BYTES = 256, 16 * 2**20
FULL_RATIO = 0.7
SPARE = 1.02


def settings_of(asked: Asked, size: int) -> Settings:
    options = {
        "--server": asked.get("url", "http://127.0.0.1:1"),
        "--token": asked["token"],
        "--cache-dir": asked["directory"],
        "--cache-bytes": str(max(size, 2**20)),
    }
    return load([part for pair in options.items() for part in pair], {})


def partitions(asked: Asked) -> list[tuple[int, int, list[Page]]]:
    """(partition, rev, pages) of what a worker has kept."""
    kept = Path(asked["kept"])
    found = []
    for partition in files.partitions(kept / asked["incarnation"])[:MAX_PARTITIONS]:
        chain = folders.find(Place(kept, asked["incarnation"], partition)).chain
        read = [page for stored in chain for page in files.read(stored)]
        found.append((partition, chain[-1].head.rev, read))
    return found


# -- a partition ready to evaluate -----------------------------------------------------------------


async def local_first(reactor: Any, asked: Asked) -> Any:
    """Milliseconds, medians over partitions: its images opened from the disk; from what was shared;
    its documents fetched and parsed."""
    kernel = base.load(KERNEL)
    client = Client(reactor, asked["url"], asked["token"])
    local: list[float] = []
    shared: list[float] = []
    remote: list[float] = []
    kept = Path(asked["kept"])
    for partition, _, _ in partitions(asked)[:10]:
        place = Place(kept, asked["incarnation"], partition)
        for times, ready in (
            (local, from_disk(kernel, place)),
            (shared, from_shared(client, kernel, place)),
            (remote, from_documents(client, kernel, place)),
        ):
            begun = time.perf_counter()
            await ready
            times.append(1000 * (time.perf_counter() - begun))
    await client.close()
    medians = [statistics.median(times) for times in (local, shared, remote)]
    return {
        "local_ms": round(medians[0], 2),
        "shared_ms": round(medians[1], 2),
        "remote_ms": round(medians[2], 2),
        "ratio": round(medians[2] / medians[0], 2),
    }


async def from_disk(kernel: Any, place: Place) -> None:
    for stored in folders.find(place).chain:
        for page in files.read(stored):
            saved.load(kernel, place.folder / files.digest(page.data), list, 0.0)


async def from_shared(client: Client, kernel: Any, place: Place) -> None:
    schema = bundle.schema(KERNEL)
    name, body = await client.image(place.partition, schema, place.incarnation)
    _, rev, _, digest = images.parts(name)
    if files.digest(body) != digest:
        raise ValueError("another digest")
    found = bundle.unpack(body, place.incarnation, place.partition, rev)
    for page in found.pages:
        saved.load_packed(kernel, files.digest(page.data), found.packed[page.key], list, 0.0)


async def from_documents(client: Client, kernel: Any, place: Place) -> None:
    after: int | None = None
    while True:
        page = await client.batch(
            place.partition,
            incarnation=place.incarnation,
            since=None,
            after=after,
            max_nodes=BATCH_NODES,
            max_bytes=BATCH_BYTES,
        )
        image = kernel.image(list)
        for slot, probes in pages.nodes(page.data):
            if probes:
                image.put(slot, probes)
        after = page.next
        if after is None:
            return


# -- a tier that is too small ----------------------------------------------------------------------


async def budget(reactor: Any, asked: Asked) -> Any:
    """Hits of a rebuild after rebuilds: each asks for every partition once, in the same order. The
    budget is what the tier keeps, its bytes times `--cache-full-ratio`."""
    found = partitions(asked)
    # Enough of them that one is no step.
    fleet = [
        (number, rev, read)
        for number, (_, rev, read) in enumerate(found * -(-MAX_PARTITIONS // len(found)))
    ]
    need = sum(files.size_of(read) for _, _, read in fleet)
    rows = []
    for ratio in asked["ratios"]:
        most = int(need * ratio / FULL_RATIO * SPARE)
        directory = Path(asked["directory"], str(ratio))
        settings = settings_of({**asked, "directory": str(directory)}, most)
        in_use: list[int] = []
        tier = start.make(reactor, settings, Metrics(), in_use.copy)
        assert tier is not None  # noqa: S101 - it has a directory
        await tier.open(asked["incarnation"])
        hits = 0
        for turn in range(ROUNDS):
            hits = 0
            for partition, rev, read in fleet:
                in_use[:] = [partition]
                tier.touch(partition)
                if await tier.read(partition) is not None:
                    hits += 1
                else:
                    await tier.put(partition, rev, read)
            del turn
        await tier.upkeep.close()
        rows.append(
            {
                "budget": ratio,
                "hits": round(hits / len(fleet), 4),
                "lru_hits": round(lru(fleet, int(need * ratio * SPARE)), 4),
            }
        )
    return rows


def lru(fleet: list[tuple[int, int, list[Page]]], most: int) -> float:
    """The share of hits of whoever evicts the oldest."""
    held: OrderedDict[int, int] = OrderedDict()
    hits = 0
    for _ in range(ROUNDS):
        hits = 0
        for partition, _, read in fleet:
            if partition in held:
                held.move_to_end(partition)
                hits += 1
                continue
            held[partition] = files.size_of(read)
            while sum(held.values()) > most:
                held.popitem(last=False)
    return hits / len(fleet)


# -- durable writes --------------------------------------------------------------------------------


async def writes(reactor: Any, asked: Asked) -> Any:
    """Images written one after the other, each durable before the next: through to the server's
    store; into a tier with room; and into one that is full of what others lack, so that it flushes
    all the while."""
    work = Writes(partitions(asked))
    client = Client(reactor, asked["url"], asked["token"])
    seconds = asked["seconds"]
    shared = Shared(reactor, client, Metrics(), KERNEL)

    async def through() -> int:
        partition, rev, page = work.next()
        body = b"".join(bundle.pack(asked["incarnation"], partition, rev, [(page, b"")]))
        name = images.name(asked["incarnation"], rev, shared.schema, files.digest(body))
        await shared.store(partition, name, body)
        return page.size

    found: dict[str, Any] = {"through": await timed(through, seconds)}
    # What is written again and again is a fifth of one tier, and more than half of the other.
    for name, part in (("absorb", 0.2), ("steady", 0.55)):
        most = int(work.size / part)
        settings = settings_of({**asked, "directory": f"{asked['directory']}/{name}"}, most)
        metrics = Metrics()
        tier = start.make(reactor, settings, metrics, list)
        assert tier is not None  # noqa: S101 - it has a directory
        await tier.open(asked["incarnation"])
        marks = Watermarks(most, 0.3, 0.4, 3600.0)
        flusher = Flusher(reactor, tier.upkeep, shared, metrics, marks, has_images=False)
        flusher.start()
        back = written_back(tier, work)
        if name == "steady":
            # Until it flushes as it will.
            await timed(back, seconds / 4)
        found[name] = await timed(back, seconds)
        flushes = metrics.registry.get_sample_value(
            "tagmill_worker_cache_flushes_total", {"outcome": "stored"}
        )
        found[name]["flushes"] = flushes or 0.0
        flusher.stop()
        await tier.upkeep.close()
    await client.close()
    found["ratio"] = round(found["steady"]["mb_per_second"] / found["through"]["mb_per_second"], 2)
    return found


class Writes:
    """Images of the partitions in a random order, each of another content than before."""

    def __init__(self, found: list[tuple[int, int, list[Page]]]) -> None:
        # As large as with the images of pages, which are about as large again.
        self._found = [
            (partition, rev, sum(page.size for page in read) * 2) for partition, rev, read in found
        ]
        self._draw = random.Random(1)  # noqa: S311 - an order, not a secret
        self._rev = max(rev for _, rev, _ in self._found)

    @property
    def size(self) -> int:
        return sum(size for _, _, size in self._found)

    def next(self) -> tuple[int, int, Page]:
        self._rev += 1
        partition, _, size = self._draw.choice(self._found)
        return partition, self._rev, Page(partition, self._rev, None, False, os.urandom(size))


def written_back(tier: Tier, work: Writes) -> Any:
    async def back() -> int:
        partition, rev, page = work.next()
        if not await tier.put(partition, rev, [page]):
            raise ValueError("the tier took no more")
        return page.size

    return back


async def timed(write: Any, seconds: float) -> dict[str, float]:
    """One after the other for so long: what was written, and how evenly."""
    begun = time.perf_counter()
    taken: list[tuple[float, float, int]] = []
    while (now := time.perf_counter()) - begun < seconds:
        size = await write()
        taken.append((now - begun, time.perf_counter() - now, size))
    lasted = time.perf_counter() - begun
    windows = [0.0] * max(1, int(seconds))
    for at, _, size in taken:
        windows[min(int(at), len(windows) - 1)] += size / 1e6
    # The last one may end after its window.
    inner = windows[:-1] or windows
    mean = statistics.fmean(inner)
    return {
        "total_mb": round(sum(size for _, _, size in taken) / 1e6, 2),
        "mb_per_second": round(sum(size for _, _, size in taken) / 1e6 / lasted, 3),
        "deviation": round(statistics.pstdev(inner) / mean, 4) if mean else 0.0,
        "max_mb_per_second": round(max(inner), 3),
        "min_mb_per_second": round(min(inner), 3),
        "iops": round(len(taken) / lasted, 2),
        "latency_ms": round(1000 * statistics.fmean(took for _, took, _ in taken), 2),
    }


PARTS = {"local_first": local_first, "budget": budget, "writes": writes}


def main(asked: Asked, answer: Any) -> None:
    """Sends (what was found, "") or (None, what went wrong) to the connection `answer`."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    outcome: list[Any] = []
    work: Coroutine[Any, Any, Any] = PARTS[asked["what"]](reactor, asked)

    def begin() -> None:
        done = Deferred.fromCoroutine(work)
        done.addBoth(outcome.append)
        done.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    failed = isinstance(outcome[0], Failure)
    answer.send((None, outcome[0].getTraceback()) if failed else (outcome[0], ""))
