"""A plan: the deployment that meets a target, what follows from it, what it takes for granted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from loadtest.planner.capacity import (
    MAX_NODES,
    TOLERANCE,
    Deployment,
    Prediction,
    counts,
    cpu_seconds,
    deploy,
    predict,
    queue,
    request_seconds,
    round_seconds,
)
from loadtest.planner.costs import Costs
from loadtest.planner.demand import Demand, State

MIB = 1 << 20
# What a worker may hold is asked for with so much more than is expected: documents grow.
MARGIN = 1.25
# The pages that a worker keeps are of packed documents, with their dictionary: 0.6 kB a document of
# `lean` and 2.5 of `varied`, where the pages of JSON that cost files measure have 0.37 and 2.0.
PACKED_PAGES = 1.65
MAX_TAGS = 100_000


@dataclass(frozen=True)
class Worker:
    """What one worker must be allowed, in bytes: `memory` of the machine, the rest as options."""

    memory: float
    image_bytes: int
    store_bytes: int

    @property
    def flags(self) -> str:
        images, store = (-(-size // MIB) for size in (self.image_bytes, self.store_bytes))
        return f"--image-bytes {images}MiB --store-bytes {store}MiB"


@dataclass(frozen=True)
class Spare:
    """How many nodes, or tags, the same processes could do in the target: the others unchanged."""

    nodes: int
    tags: int


@dataclass(frozen=True)
class CapacityPlan:
    """Sizes in bytes. `is_feasible`: the target is met, if one partition can be done in it.
    `predictions`: the same processes by where the workers have the fleet from, as far as that is
    known."""

    demand: Demand
    partitions: int
    deployment: Deployment
    prediction: Prediction
    predictions: dict[State, Prediction]
    is_feasible: bool
    cpu_seconds: dict[str, float]
    utilisation: dict[str, float]
    workers_per_api_server: float
    database_bytes: float
    network_bytes: dict[State, float]
    worker: Worker
    spare: Spare
    assumptions: list[str]
    formula: list[str]


def plan(costs: Costs, demand: Demand) -> CapacityPlan:
    """The deployment, and everything that follows from it."""
    partitions, deployment = costs.partitions(demand), deploy(costs, demand)
    used = cpu_seconds(costs, demand, deployment.workers)
    each = round_seconds(costs, demand, deployment.workers)
    prediction = predict(costs, demand, deployment)
    return CapacityPlan(
        demand=demand,
        partitions=partitions,
        deployment=deployment,
        prediction=prediction,
        predictions={
            state: predict(costs, demand.but(state=state), deployment) for state in costs.states
        },
        is_feasible=_meets(prediction, demand),
        cpu_seconds=used,
        utilisation={
            "worker": used["worker"] / (deployment.workers * prediction.seconds),
            "api": used["api"] / (deployment.api_servers * prediction.seconds),
            "database": used["database"] / (deployment.database_cores * prediction.seconds),
        },
        workers_per_api_server=each * partitions / used["api"] if used["api"] else math.inf,
        database_bytes=demand.nodes * costs.size("database", demand)
        + partitions * demand.tags * costs.bytes.get("database_match", 0.0),
        network_bytes={
            state: _network(costs, demand.but(state=state), deployment.workers)
            for state in costs.states
        },
        worker=_worker(costs, demand, deployment),
        spare=_spare(costs, demand, deployment),
        assumptions=assumptions(costs, demand),
        formula=formula(costs, demand, deployment),
    )


def _meets(prediction: Prediction, demand: Demand) -> bool:
    return prediction.seconds <= demand.target * (1 + TOLERANCE)


def _network(costs: Costs, demand: Demand, workers: int) -> float:
    amounts = counts(costs, demand, workers)
    return sum(costs.bytes.get(f"wire_{unit}", 0.0) * amount for unit, amount in amounts.items())


def _worker(costs: Costs, demand: Demand, deployment: Deployment) -> Worker:
    """One that holds every partition that it evaluates in one rebuild."""
    rounds = math.ceil(costs.partitions(demand) / deployment.workers)
    held = min(demand.nodes, rounds * costs.partition_slots)
    image = held * costs.size("image", demand)
    measured = held * costs.size("store", demand)
    store = measured * PACKED_PAGES
    worker = costs.bytes.get("worker_base", 0.0) + held * costs.size("worker", demand)
    return Worker(
        memory=worker + store - measured,
        image_bytes=math.ceil(image * MARGIN),
        store_bytes=math.ceil(store * MARGIN),
    )


def _spare(costs: Costs, demand: Demand, deployment: Deployment) -> Spare:
    def fits(nodes: int, tags: int) -> bool:
        more = demand.scaled(nodes, tags)
        return _meets(predict(costs, more, deployment), more)

    return Spare(
        nodes=_most(lambda count: fits(count, demand.tags), demand.nodes, MAX_NODES),
        tags=_most(lambda count: fits(demand.nodes, count), demand.tags, MAX_TAGS),
    )


def _most(fits: Callable[[int], bool], least: int, most: int) -> int:
    """The largest number that fits, from `least` on, if more of them never take less; 0: none."""
    if not fits(least):
        return 0
    step = least
    while least < most and fits(min(most, least + step)):
        least = min(most, least + step)
        step *= 2
    above = min(most, least + step)
    while above - least > max(1, least // 1000):
        middle = (least + above) // 2
        least, above = (middle, above) if fits(middle) else (least, middle)
    return least


def assumptions(costs: Costs, demand: Demand) -> list[str]:
    """What the figures hold for, and no further."""
    searches = round(demand.searches)
    mixture = "as in the benches" if demand.searching is None else "as given"
    own = demand.document_bytes * demand.variety
    return [
        f"documents of {demand.document_bytes:,.0f} bytes a node, of which {own:,.0f} "
        f"({demand.variety:.1%}) are left on the wire and in a cache (--document-bytes, --variety, "
        "or a --profile of the generator)",
        f"{searches:,} of {demand.tags:,} definitions search each document, as count() does, the "
        f"others look up ({mixture}: --searching SHARE)",
        "one rebuild of all tags, and nothing beside it: no uploads, no previews",
        f"partitions of {costs.partition_slots:,} nodes, all full; hot: each worker holds all of "
        "its own, which its --image-bytes must allow",
        f"cores as fast as those of the cost file, and not shared: {costs.name}, {costs.evaluator}",
        "workers "
        + ", API ".join(f"{costs.utilisation[name]:.0%}" for name in ("worker", "api"))
        + f", database {costs.utilisation['database']:.0%} busy at most; an excess of "
        f"{TOLERANCE:.0%} adds no server",
    ]


def formula(costs: Costs, demand: Demand, deployment: Deployment) -> list[str]:
    """The plan's arithmetic, a line a step."""
    workers, partitions = deployment.workers, costs.partitions(demand)
    used = cpu_seconds(costs, demand, workers)
    each, share = round_seconds(costs, demand, workers), costs.utilisation
    rounds = math.ceil(partitions / workers)
    queued = queue(costs, demand, deployment)
    request = request_seconds(costs, demand)
    budget = demand.target - costs.fixed_seconds
    whole_stage = request + rounds * each + queued.seconds
    lines = [
        f"partitions = {demand.nodes:,} nodes / {costs.partition_slots} slots = {partitions:,}",
        f"time for work = target {demand.target:g} s - fixed {costs.fixed_seconds:g} s"
        f" = {budget:.3f} s",
        f"workers = {partitions:,} partitions / {rounds} rounds = {deployment.workers:,}",
        f"worker stage = request {request:.4f} s + {rounds} rounds x {each:.4f} s + "
        f"{queued.seconds:.3f} s in the queue at API and database = {whole_stage:.3f} s",
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
