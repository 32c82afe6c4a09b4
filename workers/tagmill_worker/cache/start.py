"""How the warm tier starts with a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tagmill_worker.cache import lock
from tagmill_worker.cache.entries import Entries
from tagmill_worker.cache.flushing import Flusher, Watermarks
from tagmill_worker.cache.shared import Shared
from tagmill_worker.cache.tier import Tier
from tagmill_worker.cache.upkeep import Upkeep
from tagmill_worker.evaluators import base
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
    upkeep = Upkeep(reactor, directory, entries, metrics, held)
    if problem:
        upkeep.turn_off(problem)
    return Tier(upkeep, metrics, in_use)


def flusher(
    reactor: Any, settings: Settings, metrics: Metrics, tier: Tier | None, shared: Shared | None
) -> Flusher | None:
    """What shares the tier with other workers; None without a tier."""
    if tier is None or shared is None:
        return None
    watermarks = Watermarks(
        settings.cache_bytes,
        settings.cache_dirty_ratio,
        settings.cache_dirty_high_ratio,
        settings.cache_flush_seconds,
    )
    has_images = settings.evaluator in base.KEEPERS
    return Flusher(reactor, tier.upkeep, shared, metrics, watermarks, has_images=has_images)
