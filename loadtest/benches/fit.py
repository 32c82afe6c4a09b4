"""The unit costs that come closest to what was observed: sums of costs, none of them below zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.generate import ProfileName
from loadtest.bench import BenchError
from loadtest.planner.costs import UNITS, units
from loadtest.planner.demand import Demand, State
from loadtest.planner.fitting import least_squares, relative
from loadtest.rig.rig import Usage

# What each process may depend on: only a worker knows of nodes that it holds already.
_SHARED = ("lease", "partition", "match", "cold_node", "cold_byte", "cold_own_byte")
DEPENDS = {
    "worker": (*_SHARED, "node", "evaluation", "search", "search_byte", "search_own_byte"),
    "api": (*_SHARED, "rebuild", "tag"),
    "database": (*_SHARED, "rebuild", "tag"),
}
PROCESS_NAMES = {"worker": "worker", "api": "server", "database": "database"}
# What the size of a node is made of, on disk, in an image and in a worker.
SIZED = ("node", "byte", "own_byte")
MEASURES = (*DEPENDS, "total")


@dataclass(frozen=True)
class Fleet:
    """`own_bytes`: of a node's documents, what is left where a batch is compressed; `image_bytes`:
    of a node among as many as a partition has."""

    profile: ProfileName
    document_bytes: float
    own_bytes: float
    database_bytes: float
    worker_bytes: float
    image_bytes: float

    @property
    def variety(self) -> float:
        return self.own_bytes / self.document_bytes


@dataclass(frozen=True)
class Observation:
    """`most`: partitions of a lease at most; `slots`: of each partition."""

    profile: str
    state: str
    tags: int
    nodes: int
    partitions: int
    document_bytes: float
    most: int
    slots: int
    used: Usage

    @property
    def name(self) -> str:
        return (
            f"{self.profile}, {self.tags} tags, {self.state}, {self.partitions} partitions in "
            f"{self.leases} leases"
        )

    @property
    def leases(self) -> int:
        return self.used.round_trips.get("lease", 1)

    def counts(self, variety: float) -> dict[str, float]:
        """`waiting` is measured by itself."""
        state: State = "cold" if self.state == "cold" else "hot"
        demand = Demand(self.nodes, self.tags, 1.0, state, self.document_bytes, variety)
        return units(demand, self.partitions, self.leases, 0.0)

    def seconds(self, process: str) -> float:
        name = PROCESS_NAMES[process]
        if name not in self.used.cpu_seconds:
            raise BenchError(
                "the database's CPU seconds are not to be seen: calibrate with the embedded "
                "PostgreSQL"
            )
        return self.used.cpu_seconds[name]


class Fit:
    """Costs from observations, each of which is of one of the fleets."""

    def __init__(self, seen: Sequence[Observation], fleets: Mapping[str, Fleet]) -> None:
        self._seen = seen
        self._fleets = fleets

    def _counts(self, item: Observation) -> dict[str, float]:
        return item.counts(self._fleets[item.profile].variety)

    def seconds(self, process: str) -> dict[str, float]:
        """CPU seconds of a process by unit."""
        names = DEPENDS[process]
        counted = [self._counts(item) for item in self._seen]
        rows = [[counts[unit] for unit in names] for counts in counted]
        spent = [item.seconds(process) for item in self._seen]
        # An error counts by what the whole rebuild used, where a process used little of it.
        least = [0.1 * item.used.cpu_total for item in self._seen]
        return dict(zip(names, least_squares(rows, spent, least), strict=True))

    def fixed(self) -> float:
        """The part of a rebuild in which nobody computes, where that is the least."""
        return max(0.0, min(item.used.seconds - item.used.cpu_total for item in self._seen))

    def sizes(self) -> dict[str, float]:
        """Bytes by what they depend on, at rest, in a worker and in an image."""
        fleets = list(self._fleets.values())
        rows = [[1.0, fleet.document_bytes, fleet.own_bytes] for fleet in fleets]
        found: dict[str, float] = {}
        for name in ("database", "worker", "image"):
            sizes = [float(getattr(fleet, f"{name}_bytes")) for fleet in fleets]
            each = least_squares(rows, sizes, [1.0] * len(sizes))
            found |= {f"{name}_{unit}": size for unit, size in zip(SIZED, each, strict=True)}
        return found

    def row(self, item: Observation, seconds: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
        """An observation beside what these costs say of it."""
        counts, whole = self._counts(item), item.used.cpu_total
        fitted = {
            process: sum(seconds[process].get(unit, 0.0) * counts[unit] for unit in UNITS)
            for process in DEPENDS
        }
        errors = {
            process: relative(fitted[process], item.seconds(process), whole) for process in DEPENDS
        }
        errors["total"] = relative(sum(fitted.values()), whole, whole)
        return {
            "name": item.name,
            "profile": item.profile,
            "nodes": item.nodes,
            "partitions": item.partitions,
            "leases": item.leases,
            "tags": item.tags,
            "state": item.state,
            "seconds": item.used.seconds,
            "cpu_seconds": item.used.cpu_seconds,
            "fitted_seconds": {name: round(value, 4) for name, value in fitted.items()},
            "errors": {name: round(error, 4) for name, error in errors.items()},
            "memory_bytes": item.used.memory_bytes,
        }


def worst(rows: Sequence[Mapping[str, Any]], measure: str) -> dict[str, Any]:
    row = max(rows, key=lambda item: float(item["errors"][measure]))
    return {"error": row["errors"][measure], "at": row["name"]}


def fleet_json(fleet: Fleet) -> dict[str, float]:
    return {
        "document_bytes": round(fleet.document_bytes, 1),
        "variety": round(fleet.variety, 5),
        "wire_bytes": round(fleet.own_bytes, 1),
        "database_bytes": round(fleet.database_bytes, 1),
        "worker_bytes": round(fleet.worker_bytes, 1),
        "image_bytes": round(fleet.image_bytes, 1),
    }
