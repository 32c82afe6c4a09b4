"""A discrete-event simulation of a rebuild, to check the formula: queues, rounds, read-ahead.

Its unit is a partition, never a node. Where a fleet has too many partitions, several are simulated
as one that costs as much, and of many workers, several as one that works as much: the time that it
takes is bounded, whatever the fleet.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from loadtest.planner import sharing
from loadtest.planner.capacity import MIN_SECONDS, Deployment, batches, most, parts, shared
from loadtest.planner.costs import (
    Costs,
    Units,
    completion_units,
    fetch_units,
    lease_units,
    node_units,
    request_units,
)
from loadtest.planner.demand import Demand
from loadtest.planner.sharing import MAX_ORDINARY

# About 20 events each.
MAX_PARTITIONS = 20_000
# Each has some leases of its own in the end, however coarse the ones before.
MAX_WORKERS = 2_000
# Squared coefficients of variation of service times. A request varies by a quarter of its mean; an
# evaluation is a sum over a thousand documents, and hardly varies.
SPREAD = {"worker": 1 / 400, "api": 1 / 16, "database": 1 / 16}
# One machine's cores are shared in turns of this length, as an operating system does.
SLICE_SECONDS = 0.01

Events = Generator[Any, Any, None]


@dataclass(frozen=True)
class Simulated:
    """`utilisation` by process; `lease_p95_seconds` is what a worker waits for a lease.
    `partitions_per_event`: how many are simulated as one, until the last are shared out."""

    seconds: float
    utilisation: dict[str, float]
    lease_p95_seconds: float
    partitions_per_event: int


def simulate(costs: Costs, demand: Demand, deployment: Deployment, seed: int = 1) -> Simulated:
    """The time of one rebuild, from the request to the last completion."""
    return _Rebuild(costs, demand, deployment, seed).run()


class _Rebuild:
    """A slice of the rebuild: where workers are too many, a part of them with as large a part of
    everything else. Partitions, workers and servers are the slice's, `demand` is the whole."""

    def __init__(self, costs: Costs, demand: Demand, deployment: Deployment, seed: int) -> None:
        self._costs = costs
        self._demand = demand
        self._random = random.Random(seed)  # noqa: S311 - reproducible
        self._env = simpy.Environment()
        partitions = costs.partitions(demand)
        workers = min(deployment.workers, partitions)
        # How many slices like this one there are.
        self._slices = max(1, math.ceil(workers / MAX_WORKERS))
        self._workers = math.ceil(workers / self._slices)
        self._partitions = self._left = math.ceil(partitions / self._slices)
        self._capacity = {
            "api": max(1, round(deployment.api_servers / self._slices)),
            "database": max(1, round(deployment.database_cores / self._slices)),
        }
        # A slice that has less than one server has a slower one.
        self._slowness = {
            "api": self._capacity["api"] * self._slices / deployment.api_servers,
            "database": self._capacity["database"] * self._slices / deployment.database_cores,
        }
        self._servers = {
            process: simpy.Resource(self._env, count) for process, count in self._capacity.items()
        }
        cores = deployment.machine_cores
        self._machine = (
            simpy.Resource(self._env, math.ceil(cores / self._slices)) if cores else None
        )
        self._step = max(1, math.ceil(self._partitions / MAX_PARTITIONS))
        if costs.overlap and self._step > MAX_ORDINARY:
            # Whole leases.
            self._step = MAX_ORDINARY * math.ceil(self._step / MAX_ORDINARY)
        self._nodes_each = demand.nodes / partitions
        self._most, self._parts = most(costs, demand), parts(costs, demand)
        self._partitions_per_lease = partitions / shared(costs, demand, workers).leases
        self._busy = {"worker": 0.0, "api": 0.0, "database": 0.0}
        self._waits: list[float] = []
        # The clock goes on to the end of the last moment that somebody might have waited.
        self._completed = 0.0

    def run(self) -> Simulated:
        self._env.process(self._request())
        self._env.run()
        seconds = max(MIN_SECONDS, self._completed + self._costs.fixed_seconds)
        capacity = {"worker": self._workers, **self._capacity}
        self._waits.sort()
        return Simulated(
            seconds=seconds,
            utilisation={name: self._busy[name] / (capacity[name] * seconds) for name in capacity},
            lease_p95_seconds=self._waits[int(len(self._waits) * 0.95)] if self._waits else 0.0,
            partitions_per_event=self._step * self._slices,
        )

    def _request(self) -> Events:
        """The request for the rebuild; then all workers get to work."""
        for process in ("api", "database"):
            # There is one, whatever the slice.
            alone = self._slowness[process]
            amounts = {unit: count / alone for unit, count in request_units(self._demand).items()}
            yield from self._serve(process, amounts)
        for _ in range(self._workers):
            self._env.process(self._worker())

    def _worker(self) -> Events:
        yield from self._with_read_ahead() if self._costs.overlap else self._one_by_one()

    def _with_read_ahead(self) -> Events:
        """Partitions are leased and fetched while others are evaluated, and completed likewise."""
        # The next lease is asked for when no more than this awaits evaluation.
        each = self._evaluation_seconds(self._step)
        ahead = sharing.AHEAD_SECONDS / each if each else self._partitions
        fetched = simpy.Store(self._env, max(1, int(ahead)))
        evaluated = simpy.Store(self._env)
        self._env.process(self._fetching(fetched))
        self._env.process(self._completing(fetched, evaluated))
        while taken := (yield fetched.get()):
            yield from self._evaluate(taken, 1)
            yield evaluated.put(taken)
        yield evaluated.put(0)

    def _fetching(self, fetched: simpy.Store) -> Events:
        while (leased := self._leased())[0]:
            size, count = leased
            yield from self._lease(size, count)
            for first in range(0, size, self._step):
                taken = min(self._step, size - first)
                yield from self._fetch(taken, 1)
                yield fetched.put(taken)
        yield fetched.put(0)

    def _completing(self, fetched: simpy.Store, evaluated: simpy.Store) -> Events:
        """What is evaluated while a completion is on its way goes together in the next one, and
        while there is more to evaluate, that is waited for, a moment."""
        is_last = False
        while not is_last and (finished := (yield evaluated.get())):
            moment = self._env.timeout(sharing.LINGER_SECONDS)
            while evaluated.items or (fetched.items and finished < sharing.MAX_RESULTS):
                more = evaluated.get()
                yield more | moment
                if not more.triggered:
                    more.cancel()
                    break
                finished += more.value
                is_last = more.value == 0
            yield from self._complete(finished, self._completions(finished))

    def _completions(self, finished: int) -> int:
        """One; but as many as there were leases where one event stands for several."""
        return 1 if self._step <= MAX_ORDINARY else math.ceil(finished / MAX_ORDINARY)

    def _one_by_one(self) -> Events:
        """A batch is fetched, then evaluated; then the next one."""
        count = batches(self._costs, self._demand)
        while taken := self._take():
            yield from self._lease(taken, taken)
            for _ in range(count):
                yield from self._fetch(taken, count)
                yield from self._evaluate(taken, count)
            yield from self._complete(taken, taken)

    def _leased(self) -> tuple[int, int]:
        """Partitions of the next event, and the leases that it stands for; (0, 0) at the end."""
        if not self._left:
            return 0, 0
        is_cold = not self._demand.is_held
        size = sharing.size(self._left, self._workers, is_cold=is_cold, most=self._most)
        # The last are single ones, to end as evenly.
        count = max(1, min(self._step, self._share()) // size)
        self._left -= size * count
        return size * count, count

    def _share(self) -> int:
        """What one worker may take of what is left, by the rule of a single lease."""
        return self._left // (self._workers * (1 if self._demand.is_held else 2))

    def _take(self) -> int:
        """Partitions of one event; 0 at the end. The last are single ones, to end as evenly."""
        share = self._left // self._workers
        taken = min(self._left, max(1, min(self._step, share)))
        self._left -= taken
        return taken

    def _lease(self, size: int, count: int) -> Events:
        """`count` leases of together `size` partitions, one after another."""
        began = self._env.now
        # Half of them are gone when half of the leases are taken. Every lease looks at all slices.
        waiting = (self._left + size - (size - size // count) / 2) * self._slices
        # Where a partition's tags come in several leases, each of them looks at what waits.
        leases = count * self._parts
        amounts = lease_units(size, waiting * leases, leases)
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)
        self._waits.append((self._env.now - began) / count)

    def _fetch(self, taken: int, count: int) -> Events:
        """One batch of `count`."""
        amounts = fetch_units(self._demand, self._nodes(taken) / count)
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
            **node_units(self._demand, nodes),
            **fetch_units(self._demand, nodes),
        }
        return self._costs.of("worker", amounts)

    def _complete(self, taken: int, count: int) -> Events:
        amounts = completion_units(self._demand.tags, taken, count)
        yield from self._serve("api", amounts)
        yield from self._serve("database", amounts)
        self._completed = self._env.now

    def _nodes(self, taken: int) -> float:
        return self._nodes_each * taken

    def _serve(self, process: str, amounts: Units) -> Events:
        seconds = self._costs.of(process, amounts) * self._slowness[process]
        if not seconds:
            return
        with self._servers[process].request() as turn:
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
