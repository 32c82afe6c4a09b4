"""The capacity formula: from unit costs to the time of a rebuild, and to a plan.

All partitions wait at the start. Three stages work at the same time, each as fast as the CPU that
it has; the slowest decides:

    worker stage    the request + rounds x (worker seconds of one partition, or the time of a
                    lease where that is longer) + the queue of the first leases, or of the last
                    completions; rounds = ceil(partitions / workers)
    API stage       API seconds of the rebuild / API servers (a Python process fills one core), and
                    one more evaluation, of what was leased last
    database stage  database seconds of the rebuild / database cores, and the same
    machine stage   all of these / cores, where one machine runs everything
    seconds         fixed + the slowest stage
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from loadtest.costs import PROCESSES, Costs, completion_units, fetch_units, units

# Costs are not known better than this, so nothing is added for a smaller excess. (The origin's
# author did the same: 25 clusters at 8 to 1 made "~3" API servers.)
TOLERANCE = 0.05
MOST_NODES = 10**9
# Fewer rounds than this many below the most never pay: each costs more workers.
MOST_TRIED = 200
# How many more servers than their work needs are tried, against the queue.
FACTORS = (1, 1.25, 1.5, 2, 3, 4, 6, 8)


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
    # Without read-ahead a worker waits for the API and the database, too. With it, it asks for one
    # partition at a time, and goes no faster than leases come, nobody else being served.
    return (
        max(each["worker"], lease_seconds(costs, demand)) if costs.overlap else sum(each.values())
    )


def lease_seconds(costs: Costs, demand: Demand) -> float:
    """A lease and its nodes, in the mean over a rebuild, without a queue."""
    partitions = demand.partitions(costs)
    nodes = demand.nodes / partitions
    # In the mean, half of the partitions still wait.
    amounts = fetch_units(nodes, 1, partitions / 2, is_cold=demand.is_cold)
    return costs.of("api", amounts) + costs.of("database", amounts)


def request_seconds(costs: Costs) -> float:
    """The request for a rebuild, before which nobody works."""
    return sum(costs.of(process, {"rebuild": 1}) for process in ("api", "database"))


def batches(costs: Costs, demand: Demand) -> int:
    """Of one partition, each fetched and then evaluated; 1 where these overlap."""
    nodes = demand.nodes / demand.partitions(costs)
    return 1 if costs.overlap else math.ceil(nodes / costs.batch_nodes)


def queue_seconds(costs: Costs, demand: Demand, deployment: Deployment) -> float:
    """What the last worker waits for, as all lease at the start and complete at the end at once."""
    partitions = demand.partitions(costs)
    crowd = min(deployment.workers, partitions)
    size = demand.nodes / partitions / batches(costs, demand)
    fetch = fetch_units(size, 1, partitions, is_cold=demand.is_cold)
    complete = completion_units(demand.tags, 1)
    alone, queued = 0.0, 0.0
    for process, servers in (
        ("api", deployment.api_servers),
        ("database", deployment.database_cores),
    ):
        first, last = costs.of(process, fetch), costs.of(process, complete)
        # Without read-ahead a worker's round contains its own way already.
        alone += first + last if costs.overlap else 0.0
        # The one queue spreads the workers out, so that the other is the shorter by it.
        queued = max(queued, max(0.0, crowd / servers - 1) * max(first, last))
    return alone + queued


def predict(costs: Costs, demand: Demand, deployment: Deployment) -> Prediction:
    """The time of one rebuild with these processes."""
    partitions, used = demand.partitions(costs), cpu_seconds(costs, demand)
    rounds = math.ceil(partitions / deployment.workers)
    queued = queue_seconds(costs, demand, deployment)
    last = used["worker"] / partitions / batches(costs, demand)
    stages = {
        "worker_cpu": request_seconds(costs) + rounds * round_seconds(costs, demand) + queued,
        "api_cpu": used["api"] / deployment.api_servers + last,
        "database_cpu": used["database"] / deployment.database_cores + last,
    }
    if deployment.machine_cores:
        stages["machine_cpu"] = sum(used.values()) / deployment.machine_cores
    slowest = max(stages, key=lambda name: stages[name])
    seconds = costs.fixed_seconds + stages[slowest]
    if costs.fixed_seconds > stages[slowest]:
        slowest = "latency"
    elif slowest == "worker_cpu" and costs.overlap and lease_seconds(costs, demand) > last:
        slowest = "lease_latency"
    elif slowest == "worker_cpu" and queued > rounds * round_seconds(costs, demand):
        slowest = "api_cpu"
    return Prediction(seconds, stages, slowest)


def whole(amount: float) -> int:
    """The number of servers for `amount` servers' work."""
    return max(1, math.ceil(amount / (1 + TOLERANCE) - 1e-9))


def deploy(costs: Costs, demand: Demand) -> Deployment:
    """The fewest processes that meet the target with the utilisation that the costs allow.

    Fewer rounds take more workers, and leave more time for the queue at the API: the cheapest
    combination wins. Where none meets the target, one worker a partition, and the servers for it.
    """
    partitions, used = demand.partitions(costs), cpu_seconds(costs, demand)
    budget = max(demand.target - costs.fixed_seconds, 1e-3)
    room = budget * costs.utilisation["worker"]
    # Rounds are whole, and forgive nothing: the epsilon is only for the float division.
    most = min(partitions, max(1, math.floor(room / round_seconds(costs, demand) + 1e-9)))
    least = [
        whole(used[process] / (budget * costs.utilisation[process]))
        for process in ("api", "database")
    ]
    if not costs.queues:
        return Deployment(math.ceil(partitions / most), *least)
    found: Deployment | None = None
    for rounds in range(most, max(0, most - MOST_TRIED), -1):
        workers = math.ceil(partitions / rounds)
        for factor in FACTORS:
            tried = Deployment(workers, *(math.ceil(number * factor) for number in least))
            if predict(costs, demand, tried).seconds <= demand.target * (1 + TOLERANCE):
                if found is None or cores(tried) < cores(found):
                    found = tried
                break
    return found or Deployment(partitions, *least)


def cores(deployment: Deployment) -> int:
    return deployment.workers + deployment.api_servers + deployment.database_cores


def plan(costs: Costs, demand: Demand) -> Plan:
    """The deployment, and everything that follows from it."""
    partitions, used = demand.partitions(costs), cpu_seconds(costs, demand)
    deployment = deploy(costs, demand)
    rounds = math.ceil(partitions / deployment.workers)
    each = round_seconds(costs, demand)
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
        formula=_formula(costs, demand, deployment),
    )


def _network(costs: Costs, demand: Demand) -> float:
    amounts = counts(costs, demand)
    return sum(costs.bytes.get(f"wire_{unit}", 0.0) * amount for unit, amount in amounts.items())


def _memory(costs: Costs, rounds: int) -> float:
    """A worker's, with every partition that it evaluates in one rebuild held."""
    held = rounds * costs.partition_slots * costs.bytes.get("worker_node", 0.0)
    return costs.bytes.get("worker_base", 0.0) + held


def _formula(costs: Costs, demand: Demand, deployment: Deployment) -> list[str]:
    """The plan's arithmetic, a line a step."""
    used, partitions = cpu_seconds(costs, demand), demand.partitions(costs)
    each, share = round_seconds(costs, demand), costs.utilisation
    rounds = math.ceil(partitions / deployment.workers)
    queued = queue_seconds(costs, demand, deployment)
    request = request_seconds(costs)
    budget = demand.target - costs.fixed_seconds
    lines = [
        f"partitions = {demand.nodes:,} nodes / {costs.partition_slots} slots = {partitions:,}",
        f"time for work = target {demand.target:g} s - fixed {costs.fixed_seconds:g} s"
        f" = {budget:.3f} s",
        f"workers = {partitions:,} partitions / {rounds} rounds = {deployment.workers:,}",
        f"worker stage = request {request:.4f} s + {rounds} rounds x {each:.4f} s + {queued:.3f} s "
        f"in the queue at API and database = {request + rounds * each + queued:.3f} s",
    ]
    for process, name, number in (
        ("api", "API servers", deployment.api_servers),
        ("database", "database cores", deployment.database_cores),
    ):
        amount = used[process] / (budget * share[process]) if budget > 0 else math.inf
        more = " (more than that shorten the queue)" if number > amount + 1 else ""
        lines.append(
            f"{name} >= {used[process]:.2f} CPU s / ({budget:.3f} s x {share[process]:g}) = "
            f"{amount:.2f}: {number:,}{more}"
        )
    return lines
