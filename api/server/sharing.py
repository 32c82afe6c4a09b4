"""A listening socket that several processes accept from, so that each gets its share.

All of them wake for a connection, and whoever is first has it; clients that keep their connections
would stay with whoever was lucky. So a process that has more connections than another leaves the
next one to it for a moment, and takes it when nobody did.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from zope.interface import implementer

from api.server.board import Slot

# The other process is awake already; it is late only when it is busy.
YIELD_SECONDS = 0.05
# How long nothing is left to others after they left a connection: they may be stopped.
IMPATIENT_SECONDS = 0.5


@implementer(IReadDescriptor)
class SharedPort:
    """Twisted's port does the accepting, when it is its turn. `listener` is closed: the port has a
    duplicate."""

    def __init__(self, reactor: Any, listener: socket.socket, factory: Any, slot: Slot) -> None:
        self._reactor = reactor
        self._slot = slot
        self._resuming: Any = None
        self._impatient_until = 0.0
        listener.setblocking(False)
        with listener:
            self._port = reactor.adoptStreamPort(listener.fileno(), listener.family, factory)
        slot.connections = 0
        # It reads when this reader says so.
        reactor.removeReader(self._port)
        reactor.addReader(self)

    def getHost(self) -> Any:
        return self._port.getHost()

    def stopListening(self) -> Any:
        self._reactor.removeReader(self)
        if self._resuming is not None and self._resuming.active():
            self._resuming.cancel()
        return self._port.stopListening()

    # -- as a reader -----------------------------------------------------------------------------

    def fileno(self) -> int:
        return int(self._port.fileno())

    def logPrefix(self) -> str:
        return str(self._port.logPrefix())

    def doRead(self) -> None:
        if self._slot.is_ahead and self._reactor.seconds() >= self._impatient_until:
            self._reactor.removeReader(self)
            self._resuming = self._reactor.callLater(YIELD_SECONDS, self._resume)
        else:
            self._accept()

    def connectionLost(self, reason: Any) -> None:
        """The reactor ends; the port is closed already."""

    def _resume(self) -> None:
        before = self._slot.connections
        self._accept()
        if self._slot.connections > before:
            self._impatient_until = self._reactor.seconds() + IMPATIENT_SECONDS
        self._reactor.addReader(self)

    def _accept(self) -> None:
        # Twisted's port would take up to a hundred that wait, and leave none to the others.
        self._port.numberAccepts = 1
        self._port.doRead()
