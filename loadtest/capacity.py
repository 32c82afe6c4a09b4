"""The capacity formula: from unit costs to the time of a rebuild, and to a plan.

All partitions wait at the start. Three stages work on them at the same time, each as fast as the
CPU it has; the slowest decides:

    worker stage    rounds x (worker seconds of one partition), rounds = ceil(partitions / workers)
    API stage       API seconds of the rebuild / API servers (a Python process fills one core)
    database stage  database seconds of the rebuild / database cores
    machine stage   all of these / cores, where one machine runs everything
    seconds         fixed + the slowest stage + one partition's way through API and database
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from loadtest.costs import PROCESSES, Costs, units

# Costs are not known better than this, so nothing is added for a smaller excess. (The origin's
# author did the same: 25 clusters at 8 to 1 made "~3" API servers.)
TOLERANCE = 0.05
MOST_NODES = 10**9


@dataclass(frozen=True)
class Demand:
    """`target` in seconds. `is_cold`: the workers hold nothing of the fleet yet."""

    nodes: int
    tags: int
    target: float
    is_cold: bool = False

    def partitions(self, costs: Costs) -> int:
        return -(-self.nodes // costs.partition_slots)


@dataclass(frozen=True)
class Deployment:
    """`machine_cores`: one machine that runs all of it; None where everything has its own."""

    workers: int
    api_servers: int
    database_cores: int
    machine_cores: int | None = None


@dataclass(frozen=True)
class Prediction:
    """`stages` in seconds; `bottleneck` is the slowest."""

    seconds: float
    stages: dict[str, float]
    bottleneck: str


@dataclass(frozen=True)
class Plan:
    """Sizes in bytes. `is_feasible`: the target is met, if one partition can be done in it."""

    demand: Demand
    partitions: int
    deployment: Deployment
    prediction: Prediction
    is_feasible: bool
    cpu_seconds: dict[str, float]
    utilisation: dict[str, float]
    workers_per_api_server: float
    database_bytes: float
    network_bytes: float
    network_bytes_per_second: float
    worker_memory_bytes: float
    formula: list[str]


def counts(costs: Costs, demand: Demand) -> dict[str, float]:
    return units(demand.nodes, demand.tags, demand.partitions(costs), is_cold=demand.is_cold)


def cpu_seconds(costs: Costs, demand: Demand) -> dict[str, float]:
    """What one rebuild costs each process."""
    return {process: costs.of(process, counts(costs, demand)) for process in PROCESSES}


def round_seconds(costs: Costs, demand: Demand) -> float:
    """From a worker's lease of one partition to its next one."""
    each = {
        process: total / demand.partitions(costs)
        for process, total in cpu_seconds(costs, demand).items()
    }
    # Without read-ahead a worker waits for the API and the database, too.
    return each["worker"] if costs.overlap else sum(each.values())


def predict(costs: Costs, demand: Demand, deployment: Deployment) -> Prediction:
    """The time of one rebuild with these processes."""
    partitions, used = demand.partitions(costs), cpu_seconds(costs, demand)
    rounds = math.ceil(partitions / deployment.workers)
    stages = {
        "worker_cpu": rounds * round_seconds(costs, demand),
        "api_cpu": used["api"] / deployment.api_servers,
        "database_cpu": used["database"] / deployment.database_cores,
    }
    if deployment.machine_cores:
        stages["machine_cpu"] = sum(used.values()) / deployment.machine_cores
    slowest = max(stages, key=lambda name: stages[name])
    # What a worker waits for its first partition and its last answer.
    through = (used["api"] + used["database"]) / partitions if costs.overlap else 0.0
    seconds = costs.fixed_seconds + stages[slowest] + through
    if costs.fixed_seconds > stages[slowest]:
        slowest = "latency"
    return Prediction(seconds, stages, slowest)


def whole(amount: float) -> int:
    """The number of servers for `amount` servers' work."""
    return max(1, math.ceil(amount / (1 + TOLERANCE) - 1e-9))


def plan(costs: Costs, demand: Demand) -> Plan:
    """The fewest processes that meet the target with the utilisation that the costs allow."""
    partitions, used = demand.partitions(costs), cpu_seconds(costs, demand)
    budget = max(demand.target - costs.fixed_seconds, 1e-3)
    room = budget * costs.utilisation["worker"]
    each = round_seconds(costs, demand)
    # Rounds are whole, and forgive nothing: the epsilon is only for the float division.
    rounds = max(1, math.floor(room / each + 1e-9))
    deployment = Deployment(
        workers=math.ceil(partitions / rounds),
        api_servers=whole(used["api"] / (budget * costs.utilisation["api"])),
        database_cores=whole(used["database"] / (budget * costs.utilisation["database"])),
    )
    prediction = predict(costs, demand, deployment)
    network = _network(costs, demand)
    return Plan(
        demand=demand,
        partitions=partitions,
        deployment=deployment,
        prediction=prediction,
        is_feasible=prediction.seconds <= demand.target * (1 + TOLERANCE),
        cpu_seconds=used,
        utilisation={
            "worker": used["worker"] / (deployment.workers * prediction.seconds),
            "api": used["api"] / (deployment.api_servers * prediction.seconds),
            "database": used["database"] / (deployment.database_cores * prediction.seconds),
        },
        workers_per_api_server=each * partitions / used["api"] if used["api"] else math.inf,
        database_bytes=demand.nodes * costs.bytes.get("database_node", 0.0)
        + partitions * demand.tags * costs.bytes.get("database_match", 0.0),
        network_bytes=network,
        network_bytes_per_second=network / prediction.seconds,
        worker_memory_bytes=_memory(costs, rounds),
        formula=_formula(costs, demand, deployment, budget),
    )


def _network(costs: Costs, demand: Demand) -> float:
    amounts = counts(costs, demand)
    return sum(costs.bytes.get(f"wire_{unit}", 0.0) * amount for unit, amount in amounts.items())


def _memory(costs: Costs, rounds: int) -> float:
    """A worker's, with every partition that it evaluates in one rebuild held."""
    held = rounds * costs.partition_slots * costs.bytes.get("worker_node", 0.0)
    return costs.bytes.get("worker_base", 0.0) + held


def _formula(costs: Costs, demand: Demand, deployment: Deployment, budget: float) -> list[str]:
    """The plan's arithmetic, a line a step."""
    used, partitions = cpu_seconds(costs, demand), demand.partitions(costs)
    each, share = round_seconds(costs, demand), costs.utilisation
    lines = [
        f"partitions = {demand.nodes:,} nodes / {costs.partition_slots} slots = {partitions:,}",
        f"time for work = target {demand.target:g} s - fixed {costs.fixed_seconds:g} s"
        f" = {budget:.3f} s",
        f"worker: {each:.4f} s a partition; rounds = {budget:.3f} s x {share['worker']:g} / "
        f"{each:.4f} s = {max(1, math.floor(budget * share['worker'] / each + 1e-9))}; workers = "
        f"{partitions:,} / rounds = {deployment.workers:,}",
    ]
    for process, name, number in (
        ("api", "API servers", deployment.api_servers),
        ("database", "database cores", deployment.database_cores),
    ):
        amount = used[process] / (budget * share[process])
        lines.append(
            f"{name} = {used[process]:.2f} CPU s / ({budget:.3f} s x {share[process]:g}) = "
            f"{amount:.2f}, so {number:,}"
        )
    return lines
