"""Expression sets: the definitions that leases name by a version, fetched once each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET
from twisted.internet.task import deferLater

from tagmill_wire.messages import Definition, ExpressionSet, LeaseAnswer
from tagmill_wire.sets import Order
from tagmill_worker.backoff import Backoff
from tagmill_worker.client import Client
from tagmill_worker.errors import ProtocolError, Unavailable
from tagmill_worker.metrics import Metrics

# Sets that are kept: definitions change, and leases of the version before are still under way.
MAX_KEPT = 4
# Attempts for one; then the leases go back, and the next ones may name another.
FETCH_ATTEMPTS = 4


@dataclass(frozen=True)
class DefinedSet:
    version: str
    order: Order
    definitions: dict[int, Definition]


class Sets:
    """The last few, by version."""

    def __init__(self, reactor: Any, client: Client, metrics: Metrics) -> None:
        self._reactor = reactor
        self._client = client
        self._metrics = metrics
        self._kept: dict[str, DefinedSet] = {}

    async def named_in(self, answer: LeaseAnswer) -> DefinedSet | None:
        """The set that the leases name, if any. Raises ServerError."""
        if answer.set is UNSET:
            return None
        found = self._kept.pop(answer.set, None) or await self._fetched(answer.set)
        # The one that was named last is the last to go.
        self._kept[answer.set] = found
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    async def _fetched(self, version: str) -> DefinedSet:
        backoff = Backoff()
        for _ in range(FETCH_ATTEMPTS - 1):
            try:
                return defined(version, await self._client.expression_set(version))
            except Unavailable as error:
                self._metrics.retries.labels("expression_set").inc()
                await deferLater(self._reactor, backoff.next(error.retry_after))
        return defined(version, await self._client.expression_set(version))


def defined(version: str, message: ExpressionSet) -> DefinedSet:
    """Raises ProtocolError."""
    ids = tuple(item.expression for item in message.expressions)
    if message.version != version or any(one >= two for one, two in itertools.pairwise(ids)):
        raise ProtocolError(f"not the expression set {version}")
    found = {
        item.expression: Definition(item.text, item.namespaces) for item in message.expressions
    }
    return DefinedSet(version, Order(ids), found)
