"""The capacity formula: from unit costs to the time of a rebuild, and to the processes.

All partitions wait at the start. Three stages work at the same time, each as fast as the CPU that
it has; the slowest decides:

    worker stage    the request + the first lease + rounds x (worker seconds of one partition, or
                    the time to lease and fetch it where that is longer) + the last completion,
                    and the queue of the first leases, or of the last completions;
                    rounds = ceil(partitions / workers). A worker completes together what it
                    evaluates in a moment: with one short lease each, nothing overlaps
    API stage       API seconds of the rebuild / API servers (a Python process fills one core), the
                    evaluation of what was leased last, and the database's part of the request, of
                    the first lease and of the last completion: the API has nothing to do meanwhile
    database stage  database seconds of the rebuild / database cores, and the same
    machine stage   all of these / cores, where one machine runs everything
    seconds         fixed + the slowest stage
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from loadtest.planner import sharing
from loadtest.planner.costs import (
    PROCESSES,
    Costs,
    completion_units,
    fetch_units,
    lease_units,
    node_units,
    request_units,
    units,
)
from loadtest.planner.demand import Demand
from loadtest.planner.sharing import AHEAD_SECONDS, Shared
from tagmill.work.policy import Speed

# Costs are not known better than this, so nothing is added for a smaller excess. (The origin's
# author did the same: 25 clusters at 8 to 1 made "~3" API servers.)
TOLERANCE = 0.05
MAX_NODES = 10**9
# Where only what is sent costs anything, a warm rebuild takes no time, and is divided by.
MIN_SECONDS = 1e-9
# Fewer rounds than this many below the most never pay: each costs more workers.
MAX_TRIED = 200
# How many more servers than their work needs are tried, against the queue.
FACTORS = (1, 1.25, 1.5, 2, 3, 4, 6, 8)


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
class Queue:
    """What the last worker waits for, in the queue of the process at which most wait; and what its
    first lease and its last completion take without any, by process."""

    waiting: float
    process: str
    alone: dict[str, float]

    @property
    def seconds(self) -> float:
        return self.waiting + sum(self.alone.values())


def shared(costs: Costs, demand: Demand, workers: int) -> Shared:
    """The leases of one rebuild."""
    partitions = costs.partitions(demand)
    if not costs.overlap:
        return sharing.one_by_one(partitions)
    made = sharing.shared(partitions, workers, is_cold=not demand.is_held, most=most(costs, demand))
    return replace(made, leases=made.leases * parts(costs, demand))


def most(costs: Costs, demand: Demand) -> int:
    """The partitions of a lease at most, which is bounded in time."""
    return sharing.most(*_partition(costs, demand), is_cold=not demand.is_held)


def parts(costs: Costs, demand: Demand) -> int:
    """The leases in which the tags of one partition come."""
    return sharing.parts(*_partition(costs, demand), is_cold=not demand.is_held)


def _partition(costs: Costs, demand: Demand) -> tuple[float, int, Speed]:
    return demand.nodes / costs.partitions(demand), demand.tags, worker_speed(costs, demand)


def worker_speed(costs: Costs, demand: Demand) -> Speed:
    """As a worker measures it."""
    cold = costs.of("worker", fetch_units(demand.but(state="cold"), 1))
    warm = costs.of("worker", node_units(demand, 1))
    return Speed(cold, warm / max(1, demand.tags))


def counts(costs: Costs, demand: Demand, workers: int) -> dict[str, float]:
    made, partitions = shared(costs, demand, workers), costs.partitions(demand)
    return units(demand, partitions, made.leases, made.waiting)


def cpu_seconds(costs: Costs, demand: Demand, workers: int) -> dict[str, float]:
    """What one rebuild costs each process."""
    amounts = counts(costs, demand, workers)
    return {process: costs.of(process, amounts) for process in PROCESSES}


def round_seconds(costs: Costs, demand: Demand, workers: int) -> float:
    """Seconds from one partition of a worker to its next one, nobody else being served."""
    partitions = costs.partitions(demand)
    used = cpu_seconds(costs, demand, workers)
    # Without read-ahead a worker waits for the API and the database, too.
    if not costs.overlap:
        return sum(used.values()) / partitions
    size = partitions / shared(costs, demand, workers).leases
    evaluating = used["worker"] / partitions * size
    leasing, fetching = lease_seconds(costs, demand, workers), fetch_seconds(costs, demand)
    # It goes no faster than partitions come, and what the read-ahead does not cover it waits for:
    # until the first batch of a lease, since the others come while that is evaluated.
    first = fetching / -(-demand.nodes // (partitions * costs.batch_nodes))
    waiting = max(0.0, leasing + first - AHEAD_SECONDS)
    return max(leasing + fetching * size, evaluating + waiting) / size


def lease_seconds(costs: Costs, demand: Demand, workers: int) -> float:
    """A lease of the mean size, without a queue."""
    made = shared(costs, demand, workers)
    amounts = lease_units(costs.partitions(demand) / made.leases, made.waiting / made.leases)
    return sum(costs.of(process, amounts) for process in ("api", "database"))


def fetch_seconds(costs: Costs, demand: Demand) -> float:
    """The nodes of one partition, without a queue."""
    nodes = demand.nodes / costs.partitions(demand)
    amounts = fetch_units(demand, nodes)
    return sum(costs.of(process, amounts) for process in ("api", "database"))


def request_seconds(costs: Costs, demand: Demand) -> float:
    """The request for a rebuild, before which nobody works."""
    return sum(costs.of(process, request_units(demand)) for process in ("api", "database"))


def batches(costs: Costs, demand: Demand) -> int:
    """How many batches of a partition are fetched and then evaluated; 1 where these overlap."""
    nodes = demand.nodes / costs.partitions(demand)
    return 1 if costs.overlap else math.ceil(nodes / costs.batch_nodes)


def last_completed(costs: Costs, demand: Demand, workers: int) -> float:
    """Partitions of a worker's last completion, during which it has nothing else to do: what it
    evaluates while it waits for more results, at most the last lease."""
    if not costs.overlap:
        return 1
    partitions = costs.partitions(demand)
    each = cpu_seconds(costs, demand, workers)["worker"] / partitions
    together = 1 + sharing.LINGER_SECONDS / each if each else math.inf
    return min(together, shared(costs, demand, workers).last)


def queue(costs: Costs, demand: Demand, deployment: Deployment) -> Queue:
    """All workers lease at the start, and complete at the end, at once."""
    partitions, made = costs.partitions(demand), shared(costs, demand, deployment.workers)
    crowd = min(deployment.workers, made.leases)
    # Reading ahead begins with the second partition: the first one is there before anything of it
    # is evaluated.
    each = demand.nodes / partitions
    size = each if costs.overlap else min(each, costs.batch_nodes)
    fetch = lease_units(made.first, partitions) | fetch_units(demand, size)
    complete = completion_units(demand.tags, last_completed(costs, demand, deployment.workers))
    waiting, alone = {}, {}
    for process, servers in (
        ("api", deployment.api_servers),
        ("database", deployment.database_cores),
    ):
        first, last = costs.of(process, fetch), costs.of(process, complete)
        # Without read-ahead a worker's round contains its own way already.
        alone[process] = first + last if costs.overlap else 0.0
        waiting[process] = max(0.0, crowd / servers - 1) * max(first, last)
    # The one queue spreads the workers out, so that the other is the shorter by it.
    longest = max(waiting, key=lambda process: waiting[process])
    return Queue(waiting[longest], longest, alone)


def predict(costs: Costs, demand: Demand, deployment: Deployment) -> Prediction:
    """The time of one rebuild with these processes."""
    workers, partitions = deployment.workers, costs.partitions(demand)
    used = cpu_seconds(costs, demand, workers)
    rounds = math.ceil(partitions / workers)
    each = round_seconds(costs, demand, workers)
    queued = queue(costs, demand, deployment)
    evaluation = used["worker"] / partitions / batches(costs, demand)
    last = last_completed(costs, demand, workers) * evaluation
    idle = {
        process: last + costs.of(other, request_units(demand)) + queued.alone[other]
        for process, other in (("api", "database"), ("database", "api"))
    }
    stages = {
        "worker_cpu": request_seconds(costs, demand) + rounds * each + queued.seconds,
        "api_cpu": used["api"] / deployment.api_servers + idle["api"],
        "database_cpu": used["database"] / deployment.database_cores + idle["database"],
    }
    if deployment.machine_cores:
        stages["machine_cpu"] = sum(used.values()) / deployment.machine_cores
    slowest = max(stages, key=lambda name: stages[name])
    seconds = max(MIN_SECONDS, costs.fixed_seconds + stages[slowest])
    if costs.fixed_seconds > stages[slowest]:
        slowest = "latency"
    elif slowest == "worker_cpu" and costs.overlap and each > evaluation * 1.001:
        slowest = "lease_latency"
    elif slowest == "worker_cpu" and queued.seconds > rounds * each:
        is_crowded = queued.waiting > sum(queued.alone.values())
        slowest = f"{queued.process}_cpu" if is_crowded else "latency"
    return Prediction(seconds, stages, slowest)


def whole(amount: float) -> int:
    """The number of servers for `amount` servers' work."""
    return max(1, math.ceil(amount / (1 + TOLERANCE) - 1e-9))


def deploy(costs: Costs, demand: Demand) -> Deployment:
    """The fewest processes that meet the target with the utilisation that the costs allow.

    Fewer rounds take more workers, and leave more time for the queue at the API: the cheapest
    combination wins. Where none meets the target, one worker a partition, and the servers for it.
    """
    partitions = costs.partitions(demand)
    budget = max(demand.target - costs.fixed_seconds, 1e-3)
    room = budget * costs.utilisation["worker"]
    # Rounds are whole, and forgive nothing: the epsilon is only for the float division.
    each = max(round_seconds(costs, demand, 1), MIN_SECONDS)
    most = min(partitions, max(1, math.floor(room / each + 1e-9)))
    used = cpu_seconds(costs, demand, math.ceil(partitions / most))
    least = [
        whole(used[process] / (budget * costs.utilisation[process]))
        for process in ("api", "database")
    ]
    if not costs.queues:
        return Deployment(math.ceil(partitions / most), *least)
    found: Deployment | None = None
    for rounds in range(most, max(0, most - MAX_TRIED), -1):
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
