"""The child process as the worker sees it: pages in, answers out, and a watchdog.

A page is asked for in a `Pass`: the expressions of one leased partition. Pages are evaluated in
the order in which they are submitted. Whatever happens to the child, every page is answered, once:

- One evaluation of one expression on one document takes longer than `evaluation_seconds`, or one
  expression takes more than PASS_FACTOR times that over its partition: the child is killed, the
  expression has failed in this pass, a new child goes on with the others.
- The child dies by itself: the same, once it has died twice on the same expression.
- Either happens while it is at many expressions at once, as the kernel is: then nobody can be
  blamed yet, and the rest of the pass is asked singly.
- Either happens twice while it reads the same document, or the same page: the page fails with
  EvaluatorError. Memory or time was short, which says nothing about what the document contains;
  only an error of the parser itself means that a document matches nothing.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from tagmill_wire.messages import Definition
from tagmill_worker.errors import EvaluatorBroken, EvaluatorError, Unfinished
from tagmill_worker.evaluators import frames, note
from tagmill_worker.evaluators.base import BLAMELESS, IDLE, PAGE, PARSING, READING
from tagmill_worker.evaluators.child import NOTE_DESCRIPTOR, OUT_OF_MEMORY
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page

# The child has the next page at hand while it evaluates one; more would only be lost with it.
MAX_SENT = 2
# Pages that it holds are small to ask for and quick to answer: then waking one another costs most.
MAX_ASKED = 32
# A child that ended this often on one expression, document or page would do so again.
MAX_DEATHS = 2
# The largest page takes some seconds to unpack, and the largest document a tenth of one to parse,
# whatever the expressions may take: what is not over by then waits for the machine.
READ_SECONDS = 30.0
MAX_STARTS = 3
# An ordinary expression takes 0.2 s for all of a partition; one of a second a document is as much a
# runaway as one that never ends.
PASS_FACTOR = 6
CHECKS = 5
CHECK_SECONDS = (0.02, 1.0)
# A page takes from 0.2 ms (an image that is held) to 0.1 s and more (lxml): until one was answered,
# it is taken to be slow. The newest has this share in the mean: ten pages tell of other work.
FIRST_PAGE_SECONDS = 0.1
NEWEST_PAGE = 0.2
SECRETS = "TAGMILL_WORKER_TOKEN"

log = structlog.get_logger("workers.evaluators")


@dataclass(eq=False, slots=True)
class Pass:
    """The expressions of one partition by id, and what came of them so far.

    Written by EvaluatorProcess. `failures`: reasons by id. `seen`: the slots answered, as a bitmap,
    and `unreadable` those of them that the parser refused; a slot is evaluated on the first page
    that names it. `singly`: one of the expressions is to be found out. `deaths`: how often the
    child ended at an expression (slot 0), a document, or a page (by its number).
    """

    expressions: dict[int, Definition]
    failures: dict[int, str] = field(default_factory=dict)
    seen: int = 0
    unreadable: int = 0
    singly: bool = False
    spent: dict[int, float] = field(default_factory=dict)
    deaths: Counter[tuple[int, int]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """`slots` are those evaluated on this page; `members`, by id, those of them that match;
    `vocabulary` what was learnt from them, packed as `Child.page` does."""

    slots: int = 0
    members: dict[int, int] = field(default_factory=dict)
    documents: int = 0
    seconds: float = 0.0
    vocabulary: bytes = b""


@dataclass(eq=False, slots=True)
class _Task:
    number: int
    pass_: Pass
    page: Page
    run: Sequence[int]
    learn: int | None
    done: Deferred[PageAnswer]
    is_cancelled: bool = False

    def left(self) -> list[int]:
        return [key for key in self.run if key not in self.pass_.failures]


@dataclass(frozen=True)
class ChildOptions:
    """`evaluator` by name; bytes of images that the child may hold; the share of documents that the
    reference is asked about, too; bytes that the child may take beside the images, 0 for any."""

    evaluator: str
    image_bytes: int = 0
    shadow: float = 0.0
    evaluation_bytes: int = 0

    def arguments(self) -> list[str]:
        most = self.image_bytes + self.evaluation_bytes if self.evaluation_bytes else 0
        numbers = (os.getpid(), self.image_bytes, self.shadow, most)
        return [self.evaluator, *map(str, numbers)]


class EvaluatorProcess:
    """`failed` is called with EvaluatorBroken when no child can be started."""

    def __init__(
        self,
        reactor: Any,
        options: ChildOptions,
        metrics: Metrics,
        failed: Callable[[Exception], None],
    ) -> None:
        self.evaluation_seconds = 10.0
        self._page_seconds = FIRST_PAGE_SECONDS
        self._reactor = reactor
        self._options = options
        # Keys of the pages of which the child holds an image.
        self._hot: set[int] = set()
        self._metrics = metrics
        self._failed = failed
        self._queue: deque[_Task] = deque()
        self._sent: deque[_Task] = deque()
        self._waiting: list[tuple[int, int, Deferred[None]]] = []
        self._numbers = 0
        self._open: Pass | None = None
        self._child: _Child | None = None
        self._starts = 0
        self._is_stopped = False
        self._blamed: note.Noted | None = None
        self._watch = LoopingCall(self._check)
        self._watch.clock = reactor
        self._last = note.Noted(0, IDLE, 0)
        self._stuck = 0.0
        self._checked = 0.0

    # -- what the worker calls -------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        return self._child.transport.pid if self._child and self._child.transport else None

    @property
    def backlog(self) -> int:
        """Pages that are not answered yet."""
        return len(self._queue) + len(self._sent)

    @property
    def backlog_bytes(self) -> int:
        return sum(task.page.size for task in (*self._queue, *self._sent))

    def pages_in(self, seconds: float) -> int:
        """How many pages are answered in so many seconds, by those of late."""
        return int(seconds / max(self._page_seconds, 1e-4))

    def start(self) -> None:
        self._starts += 1
        descriptor = note.create()
        self._child = child = _Child(self, note.Reader(descriptor))
        self._open = None
        self._hot.clear()
        self._last, self._stuck = note.Noted(0, IDLE, 0), 0.0
        self._reactor.spawnProcess(
            child,
            sys.executable,
            [sys.executable, "-m", "tagmill_worker.evaluators.child", *self._options.arguments()],
            env=_environment(),
            childFDs={0: "w", 1: "r", 2: 2, NOTE_DESCRIPTOR: descriptor},
        )
        os.close(descriptor)

    def stop(self) -> Deferred[None]:
        """Kill the child; fires when it is gone. Unanswered pages stay so."""
        self._is_stopped = True
        if self._watch.running:
            self._watch.stop()
        child, self._child = self._child, None
        if child is None:
            gone: Deferred[None] = Deferred()
            gone.callback(None)
            return gone
        child.kill()
        return child.gone

    def submit(
        self, pass_: Pass, page: Page, run: Sequence[int], learn: int | None = None
    ) -> Deferred[PageAnswer]:
        """Evaluate the expressions `run` of the pass on the page's slots that it has not seen, and
        learn the vocabulary of those that have changed after the rev `learn`.

        Fails with EvaluatorError when the child does not get through the page and no expression is
        to blame.
        """
        self._numbers += 1
        task = _Task(self._numbers, pass_, page, run, learn, Deferred())
        self._queue.append(task)
        self._pump()
        return task.done

    def cancel(self, pass_: Pass) -> None:
        """Forget the pass's pages; their Deferreds do not fire."""
        self._queue = deque(task for task in self._queue if task.pass_ is not pass_)
        for task in self._sent:
            if task.pass_ is pass_:
                task.is_cancelled = True
        self._wake()

    def forget(self, pages: Iterable[Page]) -> None:
        """Let the child drop these pages: nobody will ask about them again."""
        gone = [page.key for page in pages if page.key in self._hot]
        self._hot.difference_update(gone)
        if gone and self._child is not None and self._child.is_ready:
            self._child.send({"drop": gone})

    def below(self, pages: int, size: int) -> Deferred[None]:
        """Fires when no more than `pages` pages and fewer than `size` bytes are unanswered.

        A single page that is larger than `size` counts as nothing while it is alone.
        """
        entry: Deferred[None] = Deferred(self._forget_waiter)
        self._waiting.append((pages, size, entry))
        self._wake()
        return entry

    # -- to and from the child -------------------------------------------------------------------

    def ready(self) -> None:
        self._starts = 0
        self._pump()

    def answered(self, message: dict[str, Any], vocabulary: bytes) -> None:
        task = self._sent.popleft()
        # What comes next may note nothing of its own.
        self._stuck = 0.0
        pass_ = task.pass_
        if task.number != message["page"]:
            raise EvaluatorError(f"an answer to page {message['page']}, not {task.number}")
        if "missing" in message:
            # Never, but for a fault of ours: send it whole.
            self._hot.discard(task.page.key)
            self._queue.appendleft(task)
        elif "error" in message:
            if not task.is_cancelled:
                task.done.errback(Failure(EvaluatorError(message["error"])))
        else:
            self._settle(task, pass_, message, vocabulary)
        self._pump()

    def _settle(self, task: _Task, pass_: Pass, message: dict[str, Any], vocabulary: bytes) -> None:
        answer = PageAnswer(
            slots=int(message["slots"], 16),
            members={int(key): int(bits, 16) for key, bits in message["members"].items()},
            documents=message["documents"],
            seconds=message["seconds"],
            vocabulary=vocabulary,
        )
        (self._hot.add if message["held"] else self._hot.discard)(task.page.key)
        pass_.seen |= answer.slots
        pass_.failures.update({int(key): why for key, why in message["failures"].items()})
        for slot, why in message["unreadable"].items():
            self._unreadable(task, int(slot), why)
        self._page_seconds += (answer.seconds - self._page_seconds) * NEWEST_PAGE
        self._metrics.evaluation_seconds.observe(answer.seconds)
        self._metrics.documents.inc(answer.documents)
        self._metrics.image_bytes.set(message["image_bytes"])
        self._shadow(task, message)
        if not task.is_cancelled:
            task.done.callback(answer)

    def _shadow(self, task: _Task, message: dict[str, Any]) -> None:
        self._metrics.shadowed.inc(message["shadowed"])
        for expression, slot in message["disagreements"]:
            self._metrics.disagreements.inc()
            log.error(
                "the evaluators disagree",
                action="disagreement",
                partition=task.page.partition,
                slot=slot,
                expression=expression,
                text=task.pass_.expressions[expression].text,
            )

    def _pump(self) -> None:
        child = self._child
        while child is not None and child.is_ready and self._queue:
            most = MAX_ASKED if self._queue[0].page.key in self._hot else MAX_SENT
            if len(self._sent) >= most:
                break
            task = self._queue.popleft()
            run = task.left()
            if not run and task.learn is None:
                task.done.callback(PageAnswer())
                continue
            if self._open is not task.pass_:
                self._open = task.pass_
                opened = _definitions(task.pass_)
                child.send({"open": opened, "seconds": self.evaluation_seconds})
            key = task.page.key
            header: dict[str, Any] = {
                "page": task.number,
                "key": key,
                "run": run,
                "skip": f"{task.pass_.seen:x}",
                "singly": task.pass_.singly,
            }
            if task.learn is not None:
                header["learn"] = task.learn
            child.send(header, b"" if key in self._hot else task.page.data)
            self._sent.append(task)
        if self._sent and not self._watch.running and not self._is_stopped:
            self._checked = self._reactor.seconds()
            low, high = CHECK_SECONDS
            period = min(max(self.evaluation_seconds / CHECKS, low), high)
            self._watch.start(period, now=False)
        elif not self._sent and self._watch.running:
            self._watch.stop()
        self._wake()

    def _wake(self) -> None:
        backlog, size = self.backlog, self.backlog_bytes
        ready = [
            entry
            for pages, most, entry in self._waiting
            if backlog <= pages and (size < most or not backlog)
        ]
        self._waiting = [item for item in self._waiting if item[2] not in ready]
        for entry in ready:
            entry.callback(None)

    def _forget_waiter(self, entry: Deferred[None]) -> None:
        self._waiting = [item for item in self._waiting if item[2] is not entry]

    # -- the watchdog ----------------------------------------------------------------------------

    def _check(self) -> None:
        """Every so often while pages are out: has the child been at one thing for too long?

        Time that this process itself was held up for does not count: the child was then, too.
        """
        child, now = self._child, self._reactor.seconds()
        elapsed = min(now - self._checked, 2 * (self._watch.interval or 0.0))
        self._checked = now
        if child is None or not child.is_ready or not self._sent or self._blamed:
            return
        noted = child.note.read()
        self._stuck = self._stuck + elapsed if noted == self._last else 0.0
        self._last = noted
        task = self._sent[0]
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

    def _blame(self, task: _Task, noted: note.Noted, reason: str) -> None:
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

    def _unreadable(self, task: _Task, slot: int, why: str) -> None:
        task.pass_.seen |= 1 << slot
        task.pass_.unreadable |= 1 << slot
        self._metrics.unreadable.inc()
        log.error(
            "a document is malformed; it matches nothing",
            action="document_unreadable",
            partition=task.page.partition,
            slot=slot,
            reason=why,
        )

    # -- the child's end -------------------------------------------------------------------------

    def ended(self, child: _Child, status: str) -> None:
        noted = child.note.read()
        child.note.close()
        if self._is_stopped:
            return
        self._metrics.child_restarts.labels("stopped" if self._blamed else "died").inc()
        if not self._blamed:
            log.error("the child died", action="child_died", status=status, noted=noted._asdict())
            if self._sent:
                reason = f"the evaluator died on it {MAX_DEATHS} times ({_meaning(status)})"
                self._count(self._sent[0], noted, reason)
        self._blamed = None
        self._queue.extendleft(task for task in reversed(self._sent) if not task.is_cancelled)
        self._sent.clear()
        if self._starts >= MAX_STARTS:
            self._child = None
            self._failed(EvaluatorBroken(f"the child process does not start: {status}"))
            return
        self.start()

    def _count(self, task: _Task, noted: note.Noted, reason: str) -> None:
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


class _Child(ProcessProtocol):
    """One child process."""

    transport: Any = None

    def __init__(self, owner: EvaluatorProcess, reader: note.Reader) -> None:
        self.note = reader
        self.is_ready = False
        self.gone: Deferred[None] = Deferred()
        self._owner = owner
        self._buffer = frames.Buffer()

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        self.transport.write(frames.pack(header, body))

    def kill(self) -> None:
        if self.transport is not None and self.transport.pid is not None:
            self.transport.signalProcess("KILL")

    def outReceived(self, data: bytes) -> None:
        for header, body in self._buffer.feed(data):
            if "ready" in header:
                self.is_ready = True
                self._owner.ready()
            else:
                self._owner.answered(header, body)

    def processEnded(self, reason: Failure) -> None:
        self.is_ready = False
        self._owner.ended(self, reason.getErrorMessage())
        self.gone.callback(None)


def _definitions(pass_: Pass) -> list[tuple[int, str, dict[str, str]]]:
    return [
        (key, item.text, item.namespaces)
        for key, item in pass_.expressions.items()
        if key not in pass_.failures
    ]


def _meaning(status: str) -> str:
    if f"exit code {OUT_OF_MEMORY}." in status:
        return "out of memory: allow more with --evaluation-bytes"
    return status


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != SECRETS}
