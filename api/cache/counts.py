"""What the body cache counts, by keyspace: for /metrics, and for the reports of this process."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from api import metrics


@dataclass(slots=True)
class Tally:
    """lookups = hits + misses + coalesced, but for those that wait at this moment."""

    lookups: int = 0
    hits: int = 0
    misses: int = 0
    coalesced: int = 0
    evicted_bytes: int = 0
    oversize: int = 0
    builds: int = 0
    build_seconds: float = 0.0


class Counts:
    """On the reactor thread alone."""

    def __init__(self) -> None:
        self.by_keyspace: defaultdict[str, Tally] = defaultdict(Tally)

    def lookup(self, keyspace: str) -> None:
        self.by_keyspace[keyspace].lookups += 1
        metrics.BODY_LOOKUPS.labels(keyspace).inc()

    def hit(self, keyspace: str) -> None:
        self.by_keyspace[keyspace].hits += 1
        metrics.BODY_CACHE.labels(keyspace, "hit").inc()

    def miss(self, keyspace: str) -> None:
        self.by_keyspace[keyspace].misses += 1
        metrics.BODY_CACHE.labels(keyspace, "miss").inc()

    def coalesced(self, keyspace: str) -> None:
        self.by_keyspace[keyspace].coalesced += 1
        metrics.BODY_CACHE.labels(keyspace, "coalesced").inc()

    def evicted(self, keyspace: str, size: int) -> None:
        self.by_keyspace[keyspace].evicted_bytes += size
        metrics.BODY_EVICTED_BYTES.labels(keyspace).inc(size)

    def oversize(self, keyspace: str) -> None:
        self.by_keyspace[keyspace].oversize += 1
        metrics.BODY_OVERSIZE.labels(keyspace).inc()

    def built(self, keyspace: str, seconds: float) -> None:
        tally = self.by_keyspace[keyspace]
        tally.builds += 1
        tally.build_seconds += seconds
        metrics.BODY_BUILD_SECONDS.labels(keyspace).observe(seconds)
