"""Runs coroutines on Twisted's reactor from plain test functions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

SECONDS = 30.0
# What looks up names, and no more.
THREADS = 2


def run(coroutine: Coroutine[Any, Any, Any], seconds: float = SECONDS) -> Any:
    """The coroutine's result. The reactor runs for as long as it takes, `seconds` at most."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    reactor.suggestThreadPoolSize(THREADS)
    outcome: list[Any] = []

    def start() -> None:
        done = Deferred.fromCoroutine(coroutine)
        done.addTimeout(seconds, reactor)
        done.addBoth(outcome.append)
        done.addBoth(lambda _: reactor.crash())

    reactor.callWhenRunning(start)
    reactor.run()
    # `crash` leaves its threads, and the interpreter would wait for them at the end.
    reactor.suggestThreadPoolSize(0)
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    return outcome[0]


def polled(reactor: Any, condition: Callable[[], bool]) -> Deferred[None]:
    """Fires when a condition that nobody announces holds; `run` bounds the wait."""
    done: Deferred[None] = Deferred()

    def look() -> None:
        if done.called:
            return
        if condition():
            done.callback(None)
        else:
            reactor.callLater(0.01, look)

    look()
    return done
