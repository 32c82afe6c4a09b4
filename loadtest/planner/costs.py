"""Unit costs: what a tag, lease, partition, match, node, evaluation cost each part of the system.

A cost file says of each figure how it was measured. `loadtest/data/costs.json` is the committed
one; `manage.py bench calibrate --json FILE` makes another, of another machine or version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.bench import BenchError, read_json
from loadtest.planner.demand import STATES, Demand, State

DATA = Path(__file__).resolve().parents[1] / "data"
DEFAULT = DATA / "costs.json"
# The origin's own figures, from the mail in which its author does the napkin math.
ORIGIN = DATA / "origin.json"

PROCESSES = ("worker", "api", "database")
UNITS = (
    *("rebuild", "tag", "lease", "partition", "match", "waiting"),
    *("node", "evaluation", "search", "search_byte", "search_own_byte"),
    *("cold_node", "cold_byte", "cold_own_byte"),
    *("warm_node", "warm_own_byte", "shared_node", "shared_own_byte"),
)
Units = dict[str, float]


def units(demand: Demand, partitions: int, leases: float, waiting: float) -> Units:
    """How many of each unit one rebuild has.

    A tag counts once a rebuild, a match is one (tag, partition), an evaluation one (tag, node). A
    lease counts with its completion. `waiting` counts, over all leases, the partitions that wait at
    that moment: every lease looks at each of them.
    """
    return {
        **request_units(demand),
        "lease": leases,
        "partition": partitions,
        "match": partitions * demand.tags,
        "waiting": waiting,
        **node_units(demand, demand.nodes),
        **fetch_units(demand, demand.nodes),
    }


def request_units(demand: Demand) -> Units:
    """The request for a rebuild, before which nobody works."""
    return {"rebuild": 1, "tag": demand.tags}


def node_units(demand: Demand, nodes: float) -> Units:
    """The evaluation of that many nodes. A search is an evaluation that goes through a document,
    so that it costs more the larger this is, and the less of it is the same in others, since what
    is the same is searched once."""
    searches = nodes * demand.searches
    searched = searches * demand.document_bytes
    return {
        "node": nodes,
        "evaluation": nodes * demand.tags,
        "search": searches,
        "search_byte": searched,
        "search_own_byte": searched * demand.variety,
    }


# Half of what a lease and a partition cost belongs to leasing, half to completing.


def lease_units(partitions: float, waiting: float, leases: float = 1) -> Units:
    """What a lease of that many partitions asks of API and database; or several leases do."""
    return {"lease": leases / 2, "partition": partitions / 2, "waiting": waiting}


def fetch_units(demand: Demand, nodes: float) -> Units:
    """The nodes that are read, if they have to be: as documents, of whose bytes some are the node's
    own, which are what is left when a batch is compressed; or as images, of which that is left."""
    own = demand.document_bytes * demand.variety
    read = {state: nodes if demand.state == state else 0.0 for state in ("cold", "warm", "shared")}
    return {
        **{f"{state}_node": count for state, count in read.items()},
        **{f"{state}_own_byte": count * own for state, count in read.items()},
        "cold_byte": read["cold"] * demand.document_bytes,
    }


def completion_units(tags: int, partitions: float, completions: float = 1) -> Units:
    return {"lease": completions / 2, "partition": partitions / 2, "match": partitions * tags}


@dataclass(frozen=True)
class Costs:
    """`seconds[process][unit]` are CPU seconds; `bytes[name]` as the names say.

    `fixed_seconds` passes in every rebuild without anybody's CPU being busy. `overlap`: a worker
    fetches the next partition while it evaluates one; without it, each batch of `batch_nodes` is
    fetched, then evaluated. `utilisation` is the share of its capacity
    that a plan gives to each process. `queues`: a plan adds servers where workers would queue for
    them; without it, only the work is counted. `profiles[name]`: document bytes, variety and
    more of the generator's profiles, as they were measured.
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
    profiles: Mapping[str, Mapping[str, float]]

    @property
    def states(self) -> tuple[State, ...]:
        """Those whose costs are known."""
        known = {unit for table in self.seconds.values() for unit in table}
        return tuple(
            state
            for state in STATES
            if state in ("hot", "cold") or known & {f"{state}_node", f"{state}_own_byte"}
        )

    def partitions(self, demand: Demand) -> int:
        return -(-demand.nodes // self.partition_slots)

    def of(self, process: str, counts: Mapping[str, float]) -> float:
        """CPU seconds that a process needs for so many units."""
        table = self.seconds[process]
        return sum(table.get(unit, 0.0) * count for unit, count in counts.items())

    def worker_seconds(self, demand: Demand) -> float:
        """What a worker needs for a demand of one partition."""
        return self.of("worker", units(demand, 1, 1, 1))

    def size(self, name: str, demand: Demand) -> float:
        """Bytes that one node takes of `name` (wire, database, memory, image): a part for each
        node, one for each byte of its documents, one for each byte that is its own."""
        part = self.bytes.get
        each = part(f"{name}_byte", 0.0) + part(f"{name}_own_byte", 0.0) * demand.variety
        return part(f"{name}_node", 0.0) + each * demand.document_bytes


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
            profiles={
                name: {key: float(size) for key, size in sizes.items()}
                for name, sizes in value.get("profiles", {}).items()
            },
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
