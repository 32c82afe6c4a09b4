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

from loadtest.capacity import Demand, Deployment, batches
from loadtest.costs import Costs, Units, completion_units, fetch_units

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
        """The next partition is leased and fetched while one is evaluated."""
        ahead = self._env.process(self._lease_and_fetch())
        while taken := (yield ahead):
            ahead = self._env.process(self._lease_and_fetch())
            yield from self._evaluate(taken, 1)
            self._env.process(self._complete(taken))

    def _one_by_one(self) -> Events:
        """A batch is fetched, then evaluated; then the next one."""
        count = batches(self._costs, self._demand)
        while taken := self._take():
            for number in range(count):
                yield from self._fetch(taken, 1 if number == 0 else 0, count)
                yield from self._evaluate(taken, count)
            yield from self._complete(taken)

    def _lease_and_fetch(self) -> Generator[Any, Any, int]:
        """How many partitions were taken; 0 when none is left."""
        taken = self._take()
        if taken:
            yield from self._fetch(taken, 1, 1)
        return taken

    def _fetch(self, taken: int, leases: int, count: int) -> Events:
        """A lease, if it is the first batch of `count`, and a batch."""
        began = self._env.now
        nodes, waiting = self._nodes(taken) / count, self._left + taken
        amounts = fetch_units(nodes, taken * leases, waiting, is_cold=self._demand.is_cold)
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)
        self._waits.append(self._env.now - began)

    def _take(self) -> int:
        """Partitions of one event; 0 at the end. The last are single ones, to end as evenly."""
        share = self._left // self._deployment.workers
        taken = min(self._left, max(1, min(self._step, share)))
        self._left -= taken
        return taken

    def _evaluate(self, taken: int, count: int) -> Events:
        """One batch of `count`."""
        nodes, share = self._nodes(taken) / count, taken / count
        amounts = {
            "partition": share,
            "match": share * self._demand.tags,
            "node": nodes,
            "evaluation": nodes * self._demand.tags,
            "cold_node": nodes if self._demand.is_cold else 0.0,
        }
        yield from self._work("worker", self._costs.of("worker", amounts))

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
