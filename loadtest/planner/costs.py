"""Unit costs: what one lease, partition, match, node and evaluation cost each part of the system.

A cost file says of each figure how it was measured. `loadtest/data/costs.json` is the committed
one; `manage.py bench calibrate --json FILE` makes another, of another machine or version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.bench import BenchError, read_json

DATA = Path(__file__).resolve().parents[1] / "data"
DEFAULT = DATA / "costs.json"
# The origin's own figures, from the mail in which its author does the napkin math.
ORIGIN = DATA / "origin.json"

PROCESSES = ("worker", "api", "database")
UNITS = ("rebuild", "lease", "partition", "match", "node", "evaluation", "cold_node", "waiting")
Units = dict[str, float]


def units(
    nodes: int, tags: int, partitions: int, leases: float, waiting: float, *, is_cold: bool
) -> Units:
    """How many of each unit one rebuild has.

    A lease counts with its completion. A match is one (tag, partition), an evaluation one (tag,
    node). A cold node is one that is sent to a worker. `waiting` counts, over all leases, the
    partitions that wait at that moment: every lease looks at each of them.
    """
    return {
        "rebuild": 1,
        "lease": leases,
        "partition": partitions,
        "match": partitions * tags,
        "node": nodes,
        "evaluation": nodes * tags,
        "cold_node": nodes if is_cold else 0,
        "waiting": waiting,
    }


# Half of what a lease and a partition cost belongs to leasing, half to completing.


def lease_units(partitions: float, waiting: float, leases: float = 1) -> Units:
    """What a lease of that many partitions asks of API and database; or several leases do."""
    return {"lease": leases / 2, "partition": partitions / 2, "waiting": waiting}


def fetch_units(nodes: float, *, is_cold: bool) -> Units:
    """What sending that many nodes asks of them, if they have to be sent."""
    return {"cold_node": nodes if is_cold else 0}


def completion_units(tags: int, partitions: float, completions: float = 1) -> Units:
    return {"lease": completions / 2, "partition": partitions / 2, "match": partitions * tags}


@dataclass(frozen=True)
class Costs:
    """`seconds[process][unit]` are CPU seconds; `bytes[name]` as the names say.

    `fixed_seconds` passes in every rebuild without anybody's CPU being busy. `overlap`: a worker
    fetches the next partition while it evaluates one; without it, each batch of `batch_nodes` is
    fetched, then evaluated. `utilisation` is the share of its capacity
    that a plan gives to each process. `queues`: a plan adds servers where workers would queue for
    them; without it, only the work is counted.
    """

    name: str
    evaluator: str
    partition_slots: int
    batch_nodes: int
    overlap: bool
    queues: bool
    fixed_seconds: float
    seconds: Mapping[str, Mapping[str, float]]
    bytes: Mapping[str, float]
    utilisation: Mapping[str, float]

    def of(self, process: str, counts: Mapping[str, float]) -> float:
        """CPU seconds that a process needs for so many units."""
        table = self.seconds[process]
        return sum(table.get(unit, 0.0) * count for unit, count in counts.items())

    def worker_seconds(self, nodes: int, tags: int, *, is_cold: bool) -> float:
        """What a worker needs for one partition of that many nodes."""
        return self.of("worker", units(nodes, tags, 1, 1, 1, is_cold=is_cold))


def load(path: Path = DEFAULT) -> Costs:
    """Raises BenchError."""
    return build(read_json(path), str(path))


def build(value: Mapping[str, Any], source: str) -> Costs:
    """Raises BenchError when it is not a cost file's content."""
    try:
        seconds = {process: dict(value["seconds"][process]) for process in PROCESSES}
        made = Costs(
            name=str(value["name"]),
            evaluator=str(value["evaluator"]),
            partition_slots=int(value["partition_slots"]),
            batch_nodes=int(value["batch_nodes"]),
            overlap=bool(value["overlap"]),
            queues=bool(value.get("queues", True)),
            fixed_seconds=float(value["fixed_seconds"]),
            seconds=seconds,
            bytes={name: float(size) for name, size in value["bytes"].items()},
            utilisation={name: float(value["utilisation"][name]) for name in PROCESSES},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BenchError(f"{source}: not a cost file ({error!r})") from None
    for process, table in seconds.items():
        for unit, cost in table.items():
            if unit not in UNITS or not cost >= 0:
                raise BenchError(f"{source}: bad cost {process}.{unit}: {cost}")
    if not any(seconds["worker"].values()) or min(made.utilisation.values()) <= 0:
        raise BenchError(f"{source}: workers must cost something, and utilisation be above 0")
    return made
