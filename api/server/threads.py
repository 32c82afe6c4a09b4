"""Short calls into the domain, off the reactor thread, each on its thread's database connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django import db
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from api.problems import is_outage, outage
from tagmill.errors import TagmillError

T = TypeVar("T")


class Threads:
    """A thread pool of its own: one kind of work cannot starve another."""

    def __init__(self, reactor: Any, name: str, most: int) -> None:
        self._reactor = reactor
        self.pool = ThreadPool(minthreads=0, maxthreads=most, name=name)

    def start(self) -> None:
        self.pool.start()

    def stop(self) -> None:
        """Waits for the calls that run."""
        self.pool.stop()

    def call(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """The function's result. An outage of the database arrives as DatabaseUnavailable."""
        return deferToThreadPool(self._reactor, self.pool, with_connection, function, *args)


def with_connection(function: Callable[..., T], *args: Any) -> T:
    """Call on this thread's connection, which is checked before and dropped when it broke."""
    db.close_old_connections()
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
