"""What a worker has done of late, as heartbeats say it: of the last minute or so."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from tagmill_wire.messages import Done

MINUTE = 60.0


class _Total(NamedTuple):
    at: float
    partitions: int
    documents: int


class Throughput:
    """Looked at with each heartbeat: what the metrics counted since the look a minute ago."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._seen: deque[_Total] = deque()

    def look(self, now: float) -> Done | None:
        """Nothing at the first look, which there is none before."""
        total = _Total(now, self._count("completions", outcome="applied"), self._count("documents"))
        self._seen.append(total)
        # The oldest that is kept is a minute old, or the first.
        while len(self._seen) > 1 and self._seen[1].at <= now - MINUTE:
            self._seen.popleft()
        first = self._seen[0]
        if first.at >= now:
            return None
        return Done(
            total.at - first.at,
            total.partitions - first.partitions,
            total.documents - first.documents,
        )

    def _count(self, name: str, **labels: str) -> int:
        return int(self._registry.get_sample_value(f"tagmill_worker_{name}_total", labels) or 0)
