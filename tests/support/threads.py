"""Threads with connections of their own, and waiting for what they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from django.db import connections

from tests.support.sql import execute

# Nothing here takes a tenth of it; it only ends a test that would hang.
DEADLINE_SECONDS = 20.0


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run it in a thread with a connection of its own, which is closed at the end."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        finally:
            connections.close_all()

    threading.Thread(target=run, daemon=True).start()
    return future


def until(
    condition: Callable[[], Any],
    what: str,
    seconds: float = DEADLINE_SECONDS,
    every: float = 0.005,
) -> None:
    """Looks again and again: for what nobody announces."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(every)


def until_blocked(count: int = 1) -> None:
    """Until so many connections to this database wait for a lock."""
    until(lambda: len(blocked()) >= count, f"{count} wait for a lock")


def blocked() -> list[int]:
    """The connections to this database that wait for a lock, as PostgreSQL numbers them."""
    # A transaction otherwise keeps its first look at pg_stat_activity.
    execute("SELECT pg_stat_clear_snapshot()")
    found = execute(
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return [pid for (pid,) in found]


def done(future: Future[Any]) -> Any:
    return future.result(DEADLINE_SECONDS)


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """Start all at the same time; their results."""
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[], Any]) -> Any:
        barrier.wait(DEADLINE_SECONDS)
        return one()

    return [done(future) for future in [in_thread(lambda one=one: run(one)) for one in work]]
