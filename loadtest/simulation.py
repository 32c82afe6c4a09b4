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

from loadtest import sharing
from loadtest.capacity import Demand, Deployment, batches, shared
from loadtest.costs import Costs, Units, completion_units, fetch_units, lease_units

# About 20 events each.
MOST_PARTITIONS = 20_000
# Squared coefficients of variation of service times. A request varies by a quarter of its mean; an
# evaluation is a sum over a thousand documents, and hardly varies.
SPREAD = {"worker": 1 / 400, "api": 1 / 16, "database": 1 / 16}
# One machine's cores are shared in turns of this length, as an operating system does.
SLICE_SECONDS = 0.01

Events = Generator[Any, Any, None]


@dataclass(frozen=True)
class Simulated:
    """`utilisation` by process; `lease_p95_seconds` is what a worker waits for a lease."""

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
        self._partitions_per_lease = partitions / shared(costs, demand, deployment.workers).leases
        self._busy = {"worker": 0.0, "api": 0.0, "database": 0.0}
        self._waits: list[float] = []

    def run(self) -> Simulated:
        self._env.process(self._request())
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

    def _request(self) -> Events:
        """The request for the rebuild; then all workers get to work."""
        for process in ("api", "database"):
            yield from self._serve(process, {"rebuild": 1})
        for _ in range(min(self._deployment.workers, self._partitions)):
            self._env.process(self._worker())

    def _worker(self) -> Events:
        yield from self._with_read_ahead() if self._costs.overlap else self._one_by_one()

    def _with_read_ahead(self) -> Events:
        """Partitions are leased and fetched while others are evaluated, and completed likewise."""
        # The next lease is asked for when no more than this awaits evaluation.
        ahead = sharing.AHEAD_SECONDS / self._evaluation_seconds(self._step)
        fetched = simpy.Store(self._env, max(1, int(ahead)))
        evaluated = simpy.Store(self._env)
        self._env.process(self._fetching(fetched))
        self._env.process(self._completing(evaluated))
        while taken := (yield fetched.get()):
            yield from self._evaluate(taken, 1)
            yield evaluated.put(taken)
        yield evaluated.put(0)

    def _fetching(self, fetched: simpy.Store) -> Events:
        while size := self._leased():
            yield from self._lease(size)
            for first in range(0, size, self._step):
                taken = min(self._step, size - first)
                yield from self._fetch(taken, 1)
                yield fetched.put(taken)
        yield fetched.put(0)

    def _completing(self, evaluated: simpy.Store) -> Events:
        """What is evaluated while a completion is on its way goes together in the next one."""
        while finished := (yield evaluated.get()):
            is_last = False
            while evaluated.items:
                more = yield evaluated.get()
                finished += more
                is_last = more == 0
            yield from self._complete(finished)
            if is_last:
                return

    def _one_by_one(self) -> Events:
        """A batch is fetched, then evaluated; then the next one."""
        count = batches(self._costs, self._demand)
        while taken := self._take():
            yield from self._lease(taken)
            for _ in range(count):
                yield from self._fetch(taken, count)
                yield from self._evaluate(taken, count)
            yield from self._complete(taken)

    def _leased(self) -> int:
        """Partitions of the next lease; 0 at the end."""
        if not self._left:
            return 0
        size = sharing.size(self._left, self._deployment.workers, is_cold=self._demand.is_cold)
        self._left -= size
        return size

    def _take(self) -> int:
        """Partitions of one event; 0 at the end. The last are single ones, to end as evenly."""
        share = self._left // self._deployment.workers
        taken = min(self._left, max(1, min(self._step, share)))
        self._left -= taken
        return taken

    def _lease(self, size: int) -> Events:
        began = self._env.now
        amounts = lease_units(size, self._left + size)
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)
        self._waits.append(self._env.now - began)

    def _fetch(self, taken: int, count: int) -> Events:
        """One batch of `count`."""
        amounts = fetch_units(self._nodes(taken) / count, is_cold=self._demand.is_cold)
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)

    def _evaluate(self, taken: int, count: int) -> Events:
        """One batch of `count`."""
        yield from self._work("worker", self._evaluation_seconds(taken) / count)

    def _evaluation_seconds(self, taken: int) -> float:
        nodes = self._nodes(taken)
        amounts = {
            "lease": taken / self._partitions_per_lease,
            "partition": taken,
            "match": taken * self._demand.tags,
            "node": nodes,
            "evaluation": nodes * self._demand.tags,
            "cold_node": nodes if self._demand.is_cold else 0.0,
        }
        return self._costs.of("worker", amounts)

    def _complete(self, taken: int) -> Events:
        amounts = completion_units(self._demand.tags, taken)
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)

    def _nodes(self, taken: int) -> float:
        return self._demand.nodes / self._partitions * taken

    def _serve(self, process: str, amounts: Units) -> Events:
        seconds = self._costs.of(process, amounts)
        if not seconds:
            return
        server = self._api if process == "api" else self._database
        with server.request() as turn:
            yield turn
            yield from self._work(process, seconds)

    def _work(self, process: str, mean: float) -> Events:
        spread = SPREAD[process]
        seconds = mean * self._random.gammavariate(1 / spread, spread)
        self._busy[process] += seconds
        if self._machine is None:
            yield self._env.timeout(seconds)
            return
        while seconds > 0:
            with self._machine.request() as turn:
                yield turn
                yield self._env.timeout(min(seconds, SLICE_SECONDS))
            seconds -= SLICE_SECONDS
