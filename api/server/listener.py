"""LISTEN on a connection of its own: one thread that blocks until PostgreSQL says something."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from django.db import connections
from psycopg import sql

log = structlog.get_logger("tagmill.listener")

# How soon the thread notices that it shall stop.
CHECK_SECONDS = 0.5
FIRST_DELAY_SECONDS = 0.2
# One attempt of each server in this time costs a database that comes back nothing.
LONGEST_DELAY_SECONDS = 2.0


class Listener:
    """Calls `heard(channel, payload)` and, after each (re)connection, `connected()`, in the reactor
    thread. What was sent while the connection was down is lost, so `connected` must look."""

    def __init__(
        self,
        reactor: Any,
        channels: tuple[str, ...],
        heard: Callable[[str, str], None],
        connected: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._channels = channels
        self._heard = heard
        self._connected = connected
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        delay = FIRST_DELAY_SECONDS
        while not self._stopping.is_set():
            try:
                with connect() as connection:
                    delay = FIRST_DELAY_SECONDS
                    self._listen(connection)
            except Exception as error:
                # Whatever it was: without this thread, nobody would hear of work until it is
                # looked for.
                is_outage = isinstance(error, psycopg.Error)
                log.warning(
                    "listen connection lost",
                    error=str(error).strip(),
                    retry_in=delay,
                    exc_info=None if is_outage else error,
                )
                self._stopping.wait(delay * random.uniform(0.5, 1))  # noqa: S311 - jitter
                delay = min(2 * delay, LONGEST_DELAY_SECONDS)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        for channel in self._channels:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self._reactor.callFromThread(self._connected)
        while not self._stopping.is_set():
            for notice in connection.notifies(timeout=CHECK_SECONDS):
                self._reactor.callFromThread(self._heard, notice.channel, notice.payload)


def connect() -> psycopg.Connection[Any]:
    """A connection to Django's database that is none of Django's."""
    parameters = connections["default"].get_connection_params()
    for name in ("cursor_factory", "context", "client_encoding"):
        parameters.pop(name, None)
    # Without traffic, only keep-alives tell that the other side has vanished: they are among them.
    return psycopg.connect(**parameters, autocommit=True)
