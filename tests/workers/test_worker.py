"""The whole worker, in this process, with its real child, against the mock API."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Coroutine
from typing import Any

import pytest
from lxml import etree
from twisted.internet.defer import Deferred

from tests.workers import mockapi
from tests.workers.mockapi import MockApi, Partition
from tests.workers.running import polled, run
from workers import settings
from workers.client import Client
from workers.errors import Unauthorized
from workers.metrics import Metrics
from workers.runtime import Worker
from wire import bitmap


class Rig:
    """A mock API and a worker that talks to it."""

    def __init__(self, *options: str, token: str = mockapi.TOKEN) -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.api = MockApi(reactor)
        self.url = self.api.listen()
        arguments = ["--server", self.url, "--token", token, "--name", "w", *options]
        self.settings = settings.load(arguments, {})
        self.metrics = Metrics()
        self.client = Client(reactor, self.url, token, seconds=2)
        self.worker = Worker(reactor, self.settings, self.client, self.metrics)
        self.done: Deferred[None] | None = None

    def partition(self, key: int, documents: list[str]) -> Partition:
        made = self.api.partitions[key] = Partition(key)
        for slot, xml in enumerate(documents):
            made.put(slot, xml)
        return made

    def start(self) -> None:
        self.done = Deferred.fromCoroutine(self.worker.run())

    async def stop(self) -> None:
        self.worker.stop()
        assert self.done is not None
        await self.done
        await self.close()

    async def close(self) -> None:
        for request in list(self.api.parked):
            request.channel.transport.abortConnection()
        await self.api.port.stopListening()

    async def results(self, count: int) -> None:
        await self.api.until(lambda: len(self.api.results) >= count)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def members(rig: Rig, expression: int, partition: int) -> list[int]:
    return list(bitmap.slots(rig.api.matches[expression, partition][1]))


def test_it_leases_fetches_evaluates_and_completes() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<list><node/></list>", "<node/>", "<list/>"])
        rig.api.expressions = {7: "//node", 8: "true()", 9: "1 = 2"}
        rig.api.work.append({1: {7: None, 8: None, 9: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [0, 1]
        assert members(rig, 8, 1) == [0, 1, 2]
        assert members(rig, 9, 1) == []
        assert rig.api.results[0].rev == 3
        assert rig.api.results[0].documents == 3
        assert rig.api.registered[0].evaluator == "lxml"

    run(story())


def test_it_reads_every_page_and_takes_the_rev_of_the_first() -> None:
    async def story() -> None:
        rig = Rig("--batch-nodes", "3")
        partition = rig.partition(1, ["<node/>" if n % 2 else "<list/>" for n in range(10)])
        rig.api.expressions = {7: "/node"}

        def change_meanwhile(request: Any) -> Any:
            partition.put(0, "<node/>")
            return rig.api._batch(request, 1)

        rig.api.faults["batch"].extend([None, change_meanwhile])
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [1, 3, 5, 7, 9]
        assert rig.api.results[0].rev == 10
        assert [page.get("after") for page in rig.api.pages] == [None, 2, 5, 8]

    run(story())
