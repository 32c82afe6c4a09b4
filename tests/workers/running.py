"""Runs coroutines on Twisted's reactor from plain test functions, with either evaluator."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tagmill_worker.evaluators import base

VARIABLE = "TAGMILL_EVALUATOR"
EVALUATORS = ["lxml", *(["kernel"] if base.has_kernel() else [])]
SECONDS = 30.0
# What looks up names, and no more.
THREADS = 2

# Marks of tests that use the fixture `evaluator`: where only the kernel does it, and where it does
# not matter which evaluator does.
only_kernel = pytest.mark.parametrize("evaluator", EVALUATORS[1:], indirect=True)
with_one = pytest.mark.parametrize("evaluator", EVALUATORS[-1:], indirect=True)


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
