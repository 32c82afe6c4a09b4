"""`tagmill-worker`, also `manage.py worker`."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any, NoReturn

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.python.failure import Failure

from tagmill_wire import __version__, collector, tracing
from tagmill_wire.streams import hold_standard
from tagmill_worker import logs, settings
from tagmill_worker.client import Client
from tagmill_worker.errors import BadSettings, Unauthorized
from tagmill_worker.metrics import Metrics
from tagmill_worker.runtime import Worker
from tagmill_worker.settings import Settings

OK, FAILED, BAD_SETTINGS = 0, 1, 2

log = structlog.get_logger("workers")


def run() -> NoReturn:
    hold_standard()
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Works until SIGTERM or SIGINT. 0: drained; 1: the evaluator is broken; 2: settings, token."""
    if argv[:1] == ["cache"]:
        from tagmill_worker.cache.command import main as look

        return look(argv[1:], os.environ)
    try:
        given = settings.load(argv, os.environ)
    except BadSettings as error:
        return _refused(error)
    from twisted.internet import reactor

    logs.configure(settings.level(given))
    try:
        tracing.start("tagmill-worker", given.trace_url, 0.0)
        process = _Process(reactor, given)
    except (BadSettings, tracing.TracingMissing) as error:
        return _refused(error)
    running: Any = reactor
    running.callWhenRunning(process.start)
    collector.started()
    running.run()
    tracing.stop()
    return process.code


def _refused(error: Exception) -> int:
    logs.STREAM.write(f"The worker does not start: {error}\n")
    return BAD_SETTINGS


class _Process:
    """One worker in one reactor, and the signals."""

    def __init__(self, reactor: Any, given: Settings) -> None:
        self.code = OK
        self._reactor = reactor
        self._settings = given
        self._metrics = Metrics()
        client = Client(reactor, given.server, given.token)
        self._worker = Worker(reactor, given, client, self._metrics)
        self._signals = 0

    def start(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)
        if self._settings.metrics_port:
            try:
                self._reactor.listenTCP(
                    self._settings.metrics_port,
                    self._metrics.site(),
                    interface=self._settings.metrics_host,
                )
            except CannotListenError as error:
                self._say(f"--metrics-port: {error}", BAD_SETTINGS)
                self._reactor.stop()
                return
        log.info(
            "the worker starts",
            action="starting",
            name=self._settings.name,
            server=self._settings.server,
            evaluator=self._settings.evaluator,
            version=__version__,
            host=socket.gethostname(),
        )
        done = Deferred.fromCoroutine(self._worker.run())
        done.addErrback(self._failed)
        done.addBoth(lambda _: self._reactor.stop())

    def _signal(self, number: int, _: Any) -> None:
        self._signals += 1
        if self._signals > 1:
            # The child notices and ends; the leases end by the server's clock.
            os._exit(128 + number)
        self._reactor.callFromThread(self._worker.stop)

    def _failed(self, failure: Failure) -> None:
        if failure.check(Unauthorized):
            self._say(
                f"the server does not accept the token ({failure.getErrorMessage()}): make one with"
                " `tagmill worker-token` (in a checkout `manage.py worker_token`) and give it as"
                " TAGMILL_WORKER_TOKEN",
                BAD_SETTINGS,
            )
            return
        log.error(
            "the worker failed",
            action="failed",
            error=failure.getErrorMessage(),
            exception=failure.getTraceback(),
        )
        self.code = FAILED

    def _say(self, problem: str, code: int) -> None:
        logs.STREAM.write(f"The worker stops: {problem}\n")
        self.code = code
