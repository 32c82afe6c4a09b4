"""`tagmill-worker cache flush` and `drain`: what is dirty is shared now.

Beside a worker, `flush` asks it to, by a file that the worker looks for; without one, both do it
themselves, and hold the directory meanwhile. What is shared is marked on the disk, so whether
anything is left is read from there, whoever shared it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.python.failure import Failure

from tagmill_worker.cache import files, folders, start
from tagmill_worker.cache.entries import Entry
from tagmill_worker.cache.files import Place
from tagmill_worker.cache.flushing import ASKED
from tagmill_worker.cache.shared import Shared
from tagmill_worker.client import Client
from tagmill_worker.metrics import Metrics
from tagmill_worker.settings import Settings

LOOK_SECONDS = 0.2


def dirty(directory: Path) -> list[tuple[str, int]]:
    """(incarnation, partition) of what others lack. Raises OSError."""
    return [
        (name, partition)
        for name in incarnations(directory)
        for partition in files.partitions(directory / name)
        if is_dirty(Place(directory, name, partition))
    ]


def incarnations(directory: Path) -> list[str]:
    return sorted(
        path.name
        for path in directory.iterdir()
        if path.is_dir() and files.is_incarnation(path.name)
    )


def is_dirty(place: Place) -> bool:
    found = folders.find(place)
    return bool(found.chain) and Entry.of(found).is_dirty


def ask(directory: Path, seconds: float) -> bool:
    """Ask the worker that has the directory; whether it has answered in time."""
    asked, deadline = directory / ASKED, time.monotonic() + seconds
    asked.touch()
    while asked.exists():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def share(settings: Settings, seconds: float) -> None:
    """Share it from here, for so long at most. Raises BadSettings where a worker has the directory,
    and runs the reactor."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    metrics = Metrics()
    client = Client(reactor, settings.server, settings.token)
    tier = start.make(reactor, settings, metrics, lambda: [])
    assert tier is not None  # noqa: S101 - `cache_dir` is given
    shared = Shared(reactor, client, metrics, settings.evaluator)
    flusher = start.flusher(reactor, settings, metrics, tier, shared)
    assert flusher is not None  # noqa: S101 - there is a tier

    async def work() -> None:
        for name in incarnations(tier.upkeep.directory):
            await tier.open(name, alone=False)
            flusher.start()
            flusher.ask()
            await _until(reactor, flusher.is_done)
            flusher.stop()

    async def run() -> None:
        try:
            await Deferred.fromCoroutine(work()).addTimeout(seconds, reactor)
        finally:
            flusher.stop()
            await tier.upkeep.close()
            await client.close()

    outcome: list[Any] = []

    def begin() -> None:
        done = Deferred.fromCoroutine(run())
        done.addBoth(outcome.append)
        done.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    if outcome and isinstance(outcome[0], Failure) and not outcome[0].check(TimeoutError):
        outcome[0].raiseException()


def _until(reactor: Any, condition: Callable[[], bool]) -> Deferred[None]:
    done: Deferred[None] = Deferred()

    def look() -> None:
        if done.called:
            return
        if condition():
            done.callback(None)
        else:
            reactor.callLater(LOOK_SECONDS, look)

    look()
    return done
