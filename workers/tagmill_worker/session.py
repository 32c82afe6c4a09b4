"""The worker as the server knows it: registered, with a heartbeat, and asked until it answers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog
from msgspec import UnsetType
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import LoopingCall, deferLater

from tagmill_wire import __version__
from tagmill_wire.messages import (
    DONE_SINCE,
    VERSION,
    GiveUp,
    Heartbeat,
    Register,
    Registered,
)
from tagmill_worker import logs
from tagmill_worker.backoff import Backoff
from tagmill_worker.client import Client
from tagmill_worker.errors import (
    NotFound,
    Refused,
    ServerError,
    Unauthorized,
    Unavailable,
    WorkerGone,
)
from tagmill_worker.metrics import Metrics
from tagmill_worker.settings import Settings
from tagmill_worker.throughput import Throughput

T = TypeVar("T")

# The length of the host's name, as the server stores it.
MAX_HOST = 256
# A lease that is not given back ends by the server's clock anyway.
GIVE_UP_SECONDS = 5.0

log = structlog.get_logger("workers")


class Session:
    """`leases` answers those that are held, for the heartbeat, and `epoch` that of the share that
    is known. `told` is called with another epoch, `lost` with the leases that the server says are
    lost, `gone` when it has forgotten this worker, and `failed` when it does not let it in.
    `is_stopping`: nobody waits for answers any more.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        client: Client,
        metrics: Metrics,
        *,
        leases: Callable[[], list[str]],
        epoch: Callable[[], int | UnsetType],
        told: Callable[[int | UnsetType], None],
        lost: Callable[[list[str]], None],
        gone: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.registered: Registered | None = None
        self.is_stopping = False
        self._reactor = reactor
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._leases = leases
        self._epoch = epoch
        self._told = told
        self._lost = lost
        self._gone = gone
        self._failed = failed
        self._throughput = Throughput(metrics.registry)
        self._heart = LoopingCall(self._beat)
        self._heart.clock = reactor

    async def register(self) -> Registered:
        host, pid = socket.gethostname(), os.getpid()
        message = Register(
            self._settings.name,
            self._settings.evaluator,
            __version__,
            host[:MAX_HOST],
            pid,
            VERSION,
        )
        registered = await self.persistently("register", lambda: self._client.register(message))
        self.registered = registered
        self.end_heartbeat()
        self._throughput.look(self._reactor.seconds())
        self._heart.start(registered.heartbeat_seconds, now=False)
        logs.identify(worker=registered.worker)
        self._metrics.identify(registered.worker, message)
        log.info("registered", action="registered", worker=registered.worker)
        return registered

    def end_heartbeat(self) -> None:
        if self._heart.running:
            self._heart.stop()

    async def persistently(self, call: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask until there is an answer; other errors than an absent server get out."""
        backoff = Backoff()
        while True:
            try:
                return await ask()
            except (Unavailable, NotFound, Refused) as error:
                if self.is_stopping:
                    # Whatever an interrupted call ends with: nobody waits for its answer.
                    raise CancelledError from None
                # A 404 or a 4xx here is a wrong URL or another version: an operator mends it.
                after = error.retry_after if isinstance(error, Unavailable) else None
                delay = backoff.next(after)
                self._metrics.retries.labels(call).inc()
                log.warning(
                    "no answer; trying again",
                    action="retrying",
                    call=call,
                    error=_explained(error, self._settings.server),
                    delay=round(delay, 3),
                )
                await deferLater(self._reactor, delay)

    async def give_back(self, leases: list[str], reason: str, delay: int = 0) -> None:
        """Raises nothing: a lease that is not given back ends by the server's clock."""
        if self.registered is None:
            return
        message = GiveUp(self.registered.worker, leases, reason[:500], delay)
        call = Deferred.fromCoroutine(self._client.give_up(message))
        call.addTimeout(GIVE_UP_SECONDS, self._reactor)
        try:
            await call
        except (ServerError, CancelledError, TimeoutError) as error:
            log.warning("leases were not given back", action="give_up_failed", error=str(error))

    async def _beat(self) -> None:
        """Raises nothing: a missed beat is made up by the next one."""
        registered = self.registered
        if registered is None:
            return
        done = self._throughput.look(self._reactor.seconds())
        message = Heartbeat(registered.worker, self._leases(), self._epoch())
        if registered.protocol >= DONE_SINCE and done is not None:
            message = replace(message, done=done)
        call = Deferred.fromCoroutine(self._client.heartbeat(message))
        call.addTimeout(registered.heartbeat_seconds, self._reactor)
        try:
            answer = await call
        except WorkerGone:
            if self.registered is registered:
                self._gone()
        except Unauthorized as error:
            self._failed(error)
        except (ServerError, TimeoutError, CancelledError) as error:
            log.warning("no heartbeat", action="heartbeat_failed", error=str(error))
        else:
            self._told(answer.epoch)
            self._lost(answer.lost)


def _explained(error: ServerError, server: str) -> str:
    if not isinstance(error, NotFound):
        return str(error)
    return f"{error}: is {server} (--server) the address of a Tagmill server, without /api/v1?"
