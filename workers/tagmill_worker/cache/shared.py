"""The shared tier: images of whole partitions that workers leave with the server for each other.

It is only ever quicker: whatever goes wrong here, the documents are fetched. So a server that
shares none, does not answer, or is slow is left alone for a while, and an image that turned out to
be wrong is not asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import structlog
from twisted.internet.defer import CancelledError, Deferred, TimeoutError

from tagmill_wire import images
from tagmill_worker.cache import bundle, files
from tagmill_worker.cache.bundle import Bundle
from tagmill_worker.client import Client
from tagmill_worker.errors import (
    ImagesOff,
    NotFound,
    ProtocolError,
    ServerError,
    Unauthorized,
    WorkerGone,
)
from tagmill_worker.metrics import Metrics

# Documents come in pages of a second at most; an image that takes longer than this is no quicker.
ANSWER_SECONDS = 20.0
# How long nothing is asked of a server that did not answer, and of one that shares no images.
PAUSE_SECONDS = 15.0
OFF_SECONDS = 600.0
MAX_DISTRUSTED = 1000

log = structlog.get_logger("workers.cache")


class Shared:
    """`schema`: what this worker makes, and can read."""

    def __init__(self, reactor: Any, client: Client, metrics: Metrics, evaluator: str) -> None:
        self.schema = bundle.schema(evaluator)
        self._reactor = reactor
        self._client = client
        self._metrics = metrics
        self._off_until = 0.0
        self._distrusted: OrderedDict[str, None] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return bool(self._reactor.seconds() >= self._off_until)

    async def fetch(self, partition: int, incarnation: str) -> tuple[str, Bundle] | None:
        """The name, and what it is; None where there is none to be had. Raises WorkerGone,
        Unauthorized and CancelledError."""
        if not self.is_on:
            return None
        asked = Deferred.fromCoroutine(self._client.image(partition, self.schema, incarnation))
        asked.addTimeout(ANSWER_SECONDS, self._reactor)
        try:
            name, body = await asked
            found = self._checked(name, body, partition, incarnation)
        except (WorkerGone, Unauthorized, CancelledError):
            raise
        except ImagesOff as error:
            self.turned_off(error)
            return None
        except NotFound:
            # Also where the partition has gone, or the server knows no images.
            self._metrics.shared_reads.labels("miss").inc()
            return None
        except (ServerError, TimeoutError) as error:
            self._pause(PAUSE_SECONDS)
            log.warning(
                "no shared image; documents are fetched",
                action="shared_failed",
                partition=partition,
                error=str(error) or type(error).__name__,
            )
            self._metrics.shared_reads.labels("failed").inc()
            return None
        if found is None:
            self._metrics.shared_reads.labels("miss").inc()
            return None
        self._metrics.shared_reads.labels("hit").inc()
        self._metrics.shared_bytes.labels("read").inc(len(body))
        return name, found

    def distrust(self, name: str) -> None:
        """Its partition could not be evaluated with it: the documents are fetched from now on."""
        self._distrusted[name] = None
        while len(self._distrusted) > MAX_DISTRUSTED:
            self._distrusted.popitem(last=False)

    async def store(self, partition: int, name: str, body: bytes) -> None:
        """Raises ServerError, TimeoutError and CancelledError."""
        await self._client.share_image(partition, name, body)
        self._metrics.shared_bytes.labels("written").inc(len(body))

    def turned_off(self, error: ImagesOff) -> None:
        """The server says so; perhaps not for ever."""
        self._pause(OFF_SECONDS)
        log.info("no images are shared", action="shared_off", error=str(error))

    def _pause(self, seconds: float) -> None:
        self._off_until = max(self._off_until, self._reactor.seconds() + seconds)

    def _checked(self, name: str, body: bytes, partition: int, incarnation: str) -> Bundle | None:
        """None for one that is distrusted. Raises ProtocolError."""
        if name in self._distrusted:
            return None
        try:
            named, rev, schema, digest = images.parts(name)
        except ValueError as error:
            raise ProtocolError(f"an image without a name: {error}") from None
        if (named, schema) != (incarnation, self.schema):
            raise ProtocolError("an image of something else")
        if files.digest(body) != digest:
            raise ProtocolError("the image has another digest than its name")
        return bundle.unpack(body, incarnation, partition, rev)
