"""Simulated workers: the real protocol over real HTTP, and a pause where a worker evaluates.

As a program (`python -m loadtest.rig.simulated`) it runs many of them in one reactor. Its standard
input has one JSON object a line: first the `Behaviour`, then commands; each is answered by a line.

    {"workers": 50}   have that many workers; answers {"workers": 50} when all have registered
    {"report": true}  answers what was counted since the last report (`Report`)
    {"drain": true}   no more failures and no more polls: finish what is leased, then end

The end of standard input ends the process.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from loadtest.rig.behaviour import Behaviour, Report
from loadtest.rig.connection import Connection
from loadtest.rig.simulated_worker import SimulatedWorker

reactor: Any = _reactor

# Connections made at the same time; more would only fill the server's accept queue.
REGISTRATIONS = 16
# The kind of error that is no answer of the server: a fault of the simulation itself.
ENDED = "a simulated worker ended"


class Fleet:
    """The workers of this process. A worker that vanished is replaced by a new one."""

    def __init__(self, behaviour: Behaviour, say: Callable[[dict[str, Any]], None]) -> None:
        self.report = Report()
        self.is_draining = False
        self._behaviour = behaviour
        self._say = say
        self._endpoint = HostnameEndpoint(reactor, behaviour.host, behaviour.port)
        self._numbers = itertools.count()
        self._workers: list[SimulatedWorker] = []
        self._wanted = 0
        self._announced = -1

    async def connect(self) -> Connection:
        made: Connection = await connectProtocol(self._endpoint, Connection())
        return made

    def command(self, command: dict[str, Any]) -> None:
        if "workers" in command:
            self._wanted, self._announced = command["workers"], -1
            self.look()
        elif "report" in command:
            report, self.report = self.report, Report()
            self._say(asdict(report))
        elif "drain" in command:
            self.is_draining = True
            self._say({"draining": len(self._workers)})

    def look(self) -> None:
        """Start what is missing, a few at a time, and say when all have registered."""
        registered = sum(worker.is_registered for worker in self._workers)
        waiting = len(self._workers) - registered
        for _ in range(min(self._wanted - len(self._workers), REGISTRATIONS - waiting)):
            worker = SimulatedWorker(next(self._numbers), self._behaviour, self)
            self._workers.append(worker)
            Deferred.fromCoroutine(worker.run()).addBoth(self._ended, worker)
        if registered >= self._wanted != self._announced:
            self._announced = self._wanted
            self._say({"workers": registered})

    def count_error(self, kind: str) -> None:
        self.report.errors[kind] = self.report.errors.get(kind, 0) + 1

    def _ended(self, result: Any, worker: SimulatedWorker) -> None:
        self._workers.remove(worker)
        if isinstance(result, Failure):
            self.count_error(f"{ENDED}: {result.value!r}")
        # Also while draining: what is left to do is done by somebody.
        reactor.callLater(0, self.look)


class _Console(LineReceiver):
    """Standard input and output of the program."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    def lineReceived(self, line: bytes) -> None:
        message = orjson.loads(line)
        if self._fleet is None:
            self._fleet = Fleet(Behaviour(**message), self._say)
        else:
            self._fleet.command(message)

    def _say(self, message: dict[str, Any]) -> None:
        self.sendLine(orjson.dumps(message))  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any = None) -> None:
        # At once: nothing here needs an orderly end, and the server must cope with that.
        os._exit(0)


def main() -> int:
    StandardIO(_Console())
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
