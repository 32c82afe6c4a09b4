"""A discrete-event simulation of a rebuild, to check the formula: queues, rounds, read-ahead.

Its unit is a partition, never a node. Where a fleet has too many partitions, several are simulated
as one that costs as much, so that ten million nodes take seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from loadtest.capacity import Demand, Deployment
from loadtest.costs import Costs, units

# About 20 events each.
MOST_PARTITIONS = 20_000
# Squared coefficient of variation of a service time: 1/16 is a spread of a quarter of the mean.
SHAPE = 16
# One machine's cores are shared in turns of this length, as an operating system does.
SLICE_SECONDS = 0.01

Events = Generator[Any, Any, None]


@dataclass(frozen=True)
class Simulated:
    """`utilisation` by process; `lease_p95_seconds` is the wait for lease and first page."""

    seconds: float
    utilisation: dict[str, float]
    lease_p95_seconds: float
    partitions_per_event: int


def simulate(costs: Costs, demand: Demand, deployment: Deployment, seed: int = 1) -> Simulated:
    """The time of one rebuild, from the request to the last completion."""
    return _Rebuild(costs, demand, deployment, seed).run()


class _Rebuild:
    def __init__(self, costs: Costs, demand: Demand, deployment: Deployment, seed: int) -> None:
        self._costs = costs
        self._deployment = deployment
        self._random = random.Random(seed)  # noqa: S311 - reproducible
        self._env = simpy.Environment()
        self._api = simpy.Resource(self._env, deployment.api_servers)
        self._database = simpy.Resource(self._env, deployment.database_cores)
        cores = deployment.machine_cores
        self._machine = simpy.Resource(self._env, cores) if cores else None
        partitions = demand.partitions(costs)
        # A worker takes no less than one, and rounds must stay what they are.
        self._step = max(1, math.ceil(partitions / MOST_PARTITIONS))
        self._left = partitions
        self._demand = demand
        self._partitions = partitions
        self._busy = {"worker": 0.0, "api": 0.0, "database": 0.0}
        self._waits: list[float] = []

    def run(self) -> Simulated:
        workers = min(self._deployment.workers, self._partitions)
        for _ in range(workers):
            self._env.process(self._worker())
        self._env.run()
        seconds = self._env.now + self._costs.fixed_seconds
        capacity = {
            "worker": self._deployment.workers,
            "api": self._deployment.api_servers,
            "database": self._deployment.database_cores,
        }
        self._waits.sort()
        return Simulated(
            seconds=seconds,
            utilisation={name: self._busy[name] / (capacity[name] * seconds) for name in capacity},
            lease_p95_seconds=self._waits[int(len(self._waits) * 0.95)] if self._waits else 0.0,
            partitions_per_event=self._step,
        )

    def _worker(self) -> Events:
        """Evaluates; with read-ahead, the next partition is leased and fetched meanwhile."""
        ahead = self._env.process(self._lease_and_fetch())
        completions = []
        while True:
            taken = yield ahead
            if not taken:
                break
            if self._costs.overlap:
                ahead = self._env.process(self._lease_and_fetch())
            yield from self._evaluate(taken)
            done = self._env.process(self._complete(taken))
            completions.append(done)
            if not self._costs.overlap:
                yield done
                ahead = self._env.process(self._lease_and_fetch())

    def _lease_and_fetch(self) -> Generator[Any, Any, int]:
        """How many partitions were taken; 0 when none is left."""
        taken = min(self._take(), self._left)
        if not taken:
            return 0
        waiting, self._left = self._left, self._left - taken
        began = self._env.now
        # A lease is half of what a partition costs beside its matches; a completion the rest.
        lease = {"partition": taken / 2, "waiting": taken * waiting}
        yield from self._serve("api", lease)
        yield from self._serve("database", lease)
        fetch = {"node": 0.0, "cold_node": self._nodes(taken) if self._demand.is_cold else 0.0}
        yield from self._serve("api", fetch)
        yield from self._serve("database", fetch)
        self._waits.append(self._env.now - began)
        return taken

    def _take(self) -> int:
        """Partitions of one event. The last rounds are of single ones, to end as evenly."""
        share = self._left // self._deployment.workers
        return max(1, min(self._step, share))

    def _evaluate(self, taken: int) -> Events:
        nodes = self._nodes(taken)
        amounts = units(1, self._demand.tags, taken, is_cold=False) | {
            "rebuild": 0,
            "node": nodes,
            "evaluation": nodes * self._demand.tags,
            "cold_node": nodes if self._demand.is_cold else 0.0,
        }
        yield from self._work("worker", self._costs.of("worker", amounts))

    def _complete(self, taken: int) -> Events:
        amounts = {"partition": taken / 2, "match": taken * self._demand.tags}
        amounts |= {"rebuild": taken / self._partitions}
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)

    def _nodes(self, taken: int) -> float:
        return self._demand.nodes / self._partitions * taken

    def _serve(self, process: str, amounts: dict[str, float]) -> Events:
        seconds = self._costs.of(process, amounts)
        if not seconds:
            return
        server = self._api if process == "api" else self._database
        with server.request() as turn:
            yield turn
            yield from self._work(process, seconds)

    def _work(self, process: str, mean: float) -> Events:
        seconds = mean * self._random.gammavariate(SHAPE, 1 / SHAPE)
        self._busy[process] += seconds
        if self._machine is None:
            yield self._env.timeout(seconds)
            return
        while seconds > 0:
            with self._machine.request() as turn:
                yield turn
                yield self._env.timeout(min(seconds, SLICE_SECONDS))
            seconds -= SLICE_SECONDS
