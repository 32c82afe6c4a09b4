"""How the warm tier starts with a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tagmill_worker.cache import lock
from tagmill_worker.cache.entries import Entries
from tagmill_worker.cache.tier import Tier
from tagmill_worker.metrics import Metrics
from tagmill_worker.settings import Settings


def make(
    reactor: Any, settings: Settings, metrics: Metrics, in_use: Callable[[], Collection[int]]
) -> Tier | None:
    """None without `--cache-dir`. Raises BadSettings for a directory that is somebody else's; one
    that cannot be used is a tier that is off."""
    if not settings.cache_dir:
        return None
    directory = Path(settings.cache_dir)
    held, problem = lock.Lock(), ""
    try:
        held = lock.take(directory)
    except OSError as error:
        problem = str(error)
    entries = Entries(settings.cache_bytes, settings.cache_full_ratio, reactor.seconds)
    tier = Tier(reactor, directory, entries, metrics, in_use=in_use, lock=held)
    if problem:
        tier.turn_off(problem)
    return tier
