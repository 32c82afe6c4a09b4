"""Short calls into the domain, off the reactor thread, each on its thread's database connection."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from django import db
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from api.problems import is_outage, outage
from tagmill.errors import TagmillError
from tagmill_wire import tracing

T = TypeVar("T")


class Threads:
    """A thread pool of its own: one kind of work cannot starve another."""

    def __init__(self, reactor: Any, name: str, most: int) -> None:
        self._reactor = reactor
        self.name = name
        self.most = most
        self._stopping: threading.Thread | None = None
        self.pool = ThreadPool(minthreads=0, maxthreads=most, name=name)

    def start(self) -> None:
        self.pool.start()

    def stop(self) -> None:
        """Take no more calls."""
        # Twisted's waits for the calls that run, without end: one that writes its answer waits for
        # the reactor, which has stopped.
        self._stopping = threading.Thread(target=self.pool.stop, daemon=True)
        self._stopping.start()

    def join(self, seconds: float) -> bool:
        """After `stop`: whether the calls that ran have ended, within so many seconds."""
        if self._stopping is None:
            return True
        self._stopping.join(max(0.0, seconds))
        return not self._stopping.is_alive()

    def call(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """The function's result. An outage of the database arrives as DatabaseUnavailable."""
        if tracing.is_on():
            function = tracing.carrying(function)
        return deferToThreadPool(self._reactor, self.pool, with_connection, function, *args)


def with_connection(function: Callable[..., T], *args: Any) -> T:
    """Call on this thread's connection, which is checked before and dropped when it broke."""
    db.close_old_connections()
    _trust_quiet()
    try:
        return function(*args)
    except TagmillError:
        raise
    except Exception as error:
        if is_outage(error):
            raise outage(error) from error
        raise
    finally:
        db.close_old_connections()


def _trust_quiet() -> None:
    """A server that has ended, or thrown somebody out, has said so: its socket can be read. Only
    such a connection is asked whether it is in order, which costs a round trip."""
    connection: Any = db.connection
    link = connection.connection
    if link is None or link.closed:
        return
    looking = select.poll()
    looking.register(link.fileno(), select.POLLIN)
    if not looking.poll(0):
        connection.health_check_done = True
