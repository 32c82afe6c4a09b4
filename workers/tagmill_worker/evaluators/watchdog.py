"""What ends a child, and which expression or document is to blame when one has ended.

- One evaluation of one expression on one document takes longer than `evaluation_seconds`, or one
  expression takes more than PASS_FACTOR times that over its partition: the child is killed, the
  expression has failed in this pass.
- The child dies by itself: the same, once it has died twice on the same expression.
- Either happens while it is at many expressions at once, as the kernel is: then nobody can be
  blamed yet, and the rest of the pass is asked singly.
- Either happens twice while it reads the same document, or the same page: the page fails with
  EvaluatorError. Memory or time was short, which says nothing about what the document contains;
  only an error of the parser itself means that a document matches nothing.
"""

from __future__ import annotations

from typing import Any

import structlog
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from tagmill_worker.errors import Unfinished
from tagmill_worker.evaluators import note
from tagmill_worker.evaluators.backlog import Backlog
from tagmill_worker.evaluators.base import BLAMELESS, IDLE, PAGE, PARSING, READING
from tagmill_worker.evaluators.child import OUT_OF_MEMORY
from tagmill_worker.evaluators.child_process import ChildProcess
from tagmill_worker.evaluators.passes import Task
from tagmill_worker.metrics import Metrics

# A child that ended this often on one expression, document or page would do so again.
MAX_DEATHS = 2
# The largest page takes some seconds to unpack, and the largest document a tenth of one to parse,
# whatever the expressions may take: what is not over by then waits for the machine.
READ_SECONDS = 30.0
# An ordinary expression takes 0.2 s for all of a partition; one of a second a document is as much a
# runaway as one that never ends.
PASS_FACTOR = 6
CHECKS = 5
CHECK_SECONDS = (0.02, 1.0)

log = structlog.get_logger("workers.evaluators")


class Watchdog:
    """Kills the child that it was given last; its owner starts another when that has `ended`."""

    def __init__(self, reactor: Any, backlog: Backlog, metrics: Metrics) -> None:
        self.evaluation_seconds = 10.0
        self._reactor = reactor
        self._backlog = backlog
        self._metrics = metrics
        self._child: ChildProcess | None = None
        self._is_stopped = False
        self._blamed: note.Noted | None = None
        self._loop = LoopingCall(self._check)
        self._loop.clock = reactor
        self._last = note.Noted(0, IDLE, 0)
        self._stuck = 0.0
        self._checked = 0.0

    def watch(self, child: ChildProcess) -> None:
        self._child = child
        self._last, self._stuck = note.Noted(0, IDLE, 0), 0.0

    def stop(self) -> None:
        self._is_stopped = True
        self._child = None
        if self._loop.running:
            self._loop.stop()

    def pages_changed(self) -> None:
        """It looks while pages are with the child."""
        sent = self._backlog.sent
        if sent and not self._loop.running and not self._is_stopped:
            self._checked = self._reactor.seconds()
            low, high = CHECK_SECONDS
            period = min(max(self.evaluation_seconds / CHECKS, low), high)
            self._loop.start(period, now=False)
        elif not sent and self._loop.running:
            self._loop.stop()

    def answered(self) -> None:
        """A page is over; what comes next may note nothing of its own."""
        self._stuck = 0.0

    def ended(self, noted: note.Noted, status: str) -> None:
        """The child has ended, at what it noted last: was it killed, or did it die?"""
        self._metrics.child_restarts.labels("stopped" if self._blamed else "died").inc()
        if not self._blamed:
            log.error("the child died", action="child_died", status=status, noted=noted._asdict())
            if self._backlog.sent:
                reason = f"the evaluator died on it {MAX_DEATHS} times ({_meaning(status)})"
                self._count(self._backlog.sent[0], noted, reason)
        self._blamed = None

    def _check(self) -> None:
        """Every so often while pages are out: has the child been at one thing for too long?

        Time that this process itself was held up for does not count: the child was then, too.
        """
        child, now = self._child, self._reactor.seconds()
        elapsed = min(now - self._checked, 2 * (self._loop.interval or 0.0))
        self._checked = now
        if child is None or not child.is_ready or not self._backlog.sent or self._blamed:
            return
        noted = child.note.read()
        self._stuck = self._stuck + elapsed if noted == self._last else 0.0
        self._last = noted
        task = self._backlog.sent[0]
        spent = task.pass_.spent
        used = 0.0
        if noted.expression >= 0:
            used = spent[noted.expression] = spent.get(noted.expression, 0.0) + elapsed
        most = self.evaluation_seconds
        if noted.expression in READING:
            most = max(most, READ_SECONDS)
        if self._stuck >= most:
            is_page = noted.slot == PAGE or noted.expression == IDLE
            place = "one page" if is_page else f"one document (slot {noted.slot})"
            reason = f"stopped after {self._stuck:.3g} s on {place}"
        elif used >= PASS_FACTOR * self.evaluation_seconds:
            reason = f"stopped after {used:.3g} s on one partition"
        else:
            return
        self._blamed = noted
        child.kill()
        if noted.expression in READING:
            self._count(task, noted, reason)
        else:
            self._blame(task, noted, reason)

    def _blame(self, task: Task, noted: note.Noted, reason: str) -> None:
        log.warning(
            "an evaluation was stopped",
            action="evaluation_stopped",
            partition=task.page.partition,
            expression=noted.expression,
            slot=noted.slot,
            reason=reason,
        )
        if noted.expression in BLAMELESS:
            task.pass_.singly = True
        else:
            task.pass_.failures[noted.expression] = reason

    def _count(self, task: Task, noted: note.Noted, reason: str) -> None:
        """The child ended at this, for the reason; if it did so before, it is not tried again."""
        if noted.expression in BLAMELESS:
            task.pass_.singly = True
            return
        places = {PARSING: noted.slot, IDLE: task.number}
        key = (noted.expression, places.get(noted.expression, 0))
        task.pass_.deaths[key] += 1
        if task.pass_.deaths[key] < MAX_DEATHS:
            return
        if noted.expression not in READING:
            self._blame(task, noted, reason)
        elif not task.is_cancelled:
            # Whatever comes of the other pages: this one is not answered, and so nothing is.
            task.is_cancelled = True
            self._metrics.unfinished.inc()
            slot = noted.slot if noted.expression == PARSING else None
            task.done.errback(Failure(Unfinished(task.page.partition, slot, reason)))


def _meaning(status: str) -> str:
    if f"exit code {OUT_OF_MEMORY}." in status:
        return "out of memory: allow more with --evaluation-bytes"
    return status
