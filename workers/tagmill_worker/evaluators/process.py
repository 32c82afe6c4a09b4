"""The child process as the worker sees it: pages in, answers out.

A page is asked for in a `Pass`: the expressions of one leased partition. Pages are evaluated in
the order in which they are submitted. Whatever happens to the child, every page is answered, once:
a new child goes on where the one before ended, without what the watchdog found to blame for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import structlog
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tagmill_wire.messages import Pace
from tagmill_worker.errors import EvaluatorBroken, EvaluatorError
from tagmill_worker.evaluators import base, note
from tagmill_worker.evaluators.backlog import Backlog
from tagmill_worker.evaluators.child_process import ChildOptions, ChildProcess, spawn
from tagmill_worker.evaluators.passes import PageAnswer, Pass, Task
from tagmill_worker.evaluators.saving import SavedImages, Saving
from tagmill_worker.evaluators.watchdog import Watchdog
from tagmill_worker.metrics import Metrics
from tagmill_worker.pages import Page

# The child has the next page at hand while it evaluates one; more would only be lost with it.
MAX_SENT = 2
# Pages that it holds are small to ask for and quick to answer: then waking one another costs most.
MAX_ASKED = 32
MAX_STARTS = 3
# A page takes from 0.2 ms (an image that is held) to 0.1 s and more (lxml): until one was answered,
# it is taken to be slow. The newest has this share in the mean: ten pages tell of other work.
FIRST_PAGE_SECONDS = 0.1
NEWEST_PAGE = 0.2
# What is said of documents and evaluations before any: some of people's documents, on one core.
FIRST_DOCUMENT_SECONDS = 2e-4
FIRST_EVALUATION_SECONDS = {"kernel": 5e-7, "lxml": 5e-5}
# The longest that a message may say one document, or one evaluation, takes.
MAX_ONE_SECONDS = 3600.0

log = structlog.get_logger("workers.evaluators")


class EvaluatorProcess:
    """`failed` is called with EvaluatorBroken when no child can be started. `images`: where those
    of pages are saved, if they are."""

    def __init__(
        self,
        reactor: Any,
        options: ChildOptions,
        metrics: Metrics,
        failed: Callable[[Exception], None],
        images: SavedImages | None = None,
    ) -> None:
        self._page_seconds = FIRST_PAGE_SECONDS
        self._document_seconds = FIRST_DOCUMENT_SECONDS
        self._each_seconds = FIRST_EVALUATION_SECONDS.get(options.evaluator, 0.0)
        self._reactor = reactor
        self._options = options
        # Keys of the pages of which the child holds an image.
        self._hot: set[int] = set()
        self._metrics = metrics
        self._failed = failed
        self._backlog = Backlog()
        self._watchdog = Watchdog(reactor, self._backlog, metrics)
        self._images = images if options.evaluator in base.KEEPERS else None
        self._saving = Saving(self._images)
        self._numbers = 0
        self._open: Pass | None = None
        self._child: ChildProcess | None = None
        self._starts = 0
        self._is_stopped = False

    # -- what the worker calls -------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    @property
    def noted(self) -> note.Noted | None:
        """What the child is at."""
        return self._child.note.read() if self._child else None

    @property
    def evaluation_seconds(self) -> float:
        """What one expression may take on one document."""
        return self._watchdog.evaluation_seconds

    @evaluation_seconds.setter
    def evaluation_seconds(self, seconds: float) -> None:
        self._watchdog.evaluation_seconds = seconds

    @property
    def backlog(self) -> int:
        """Pages that are not answered yet."""
        return len(self._backlog)

    def pages_in(self, seconds: float) -> int:
        """How many pages are answered in so many seconds, by those of late."""
        return int(seconds / max(self._page_seconds, 1e-4))

    @property
    def pace(self) -> Pace:
        """What reading a node's documents, and one evaluation, took of late."""
        return Pace(self._document_seconds, self._each_seconds)

    def start(self) -> None:
        self._starts += 1
        self._child = spawn(self._reactor, self, self._options)
        self._watchdog.watch(self._child)
        self._open = None
        self._hot.clear()

    def stop(self) -> Deferred[None]:
        """Kill the child; fires when it is gone. Unanswered pages stay so."""
        self._is_stopped = True
        self._watchdog.stop()
        child, self._child = self._child, None
        if child is None:
            gone: Deferred[None] = Deferred()
            gone.callback(None)
            return gone
        child.kill()
        return child.gone

    def submit(
        self,
        pass_: Pass,
        page: Page,
        run: Sequence[int],
        learn: int | None = None,
        packed: bytes = b"",
    ) -> Deferred[PageAnswer]:
        """Evaluate the expressions `run` of the pass on the page's slots that it has not seen, and
        learn the vocabulary of those that have changed after the rev `learn`. `packed`: the page's
        image, where another worker shared it.

        Fails with EvaluatorError when the child does not get through the page and no expression is
        to blame.
        """
        self._numbers += 1
        task = Task(self._numbers, pass_, page, run, learn, Deferred(), packed)
        self._backlog.waiting.append(task)
        self._pump()
        return task.done

    def cancel(self, pass_: Pass) -> None:
        """Forget the pass's pages; their Deferreds do not fire."""
        self._backlog.cancel(pass_)

    def forget(self, pages: Iterable[Page]) -> None:
        """Let the child drop these pages: nobody will ask about them again."""
        gone = [page.key for page in pages if page.key in self._hot]
        self._hot.difference_update(gone)
        if gone and self._child is not None and self._child.is_ready:
            self._child.send({"drop": gone})

    def save(self, page: Page, stem: Path) -> Deferred[None]:
        """Save the image of a page; fires when that is over, also where there are no images."""
        done = self._saving.add(page, stem)
        self._saving.pump(self._child, self._hot)
        return done

    @property
    def saves_images(self) -> bool:
        return self._images is not None

    def below(self, pages: int, size: int) -> Deferred[None]:
        """Fires when so few pages and bytes are unanswered, as `Backlog.below` says."""
        return self._backlog.below(pages, size)

    # -- to and from the child -------------------------------------------------------------------

    def ready(self) -> None:
        self._starts = 0
        self._pump()
        self._saving.pump(self._child, self._hot)

    def saved(self, message: dict[str, Any]) -> None:
        if (missing := self._saving.answered(message)) is not None:
            self._hot.discard(missing)
        self._saving.pump(self._child, self._hot)

    def answered(self, message: dict[str, Any], vocabulary: bytes) -> None:
        task = self._backlog.sent.popleft()
        self._watchdog.answered()
        pass_ = task.pass_
        if task.number != message["page"]:
            raise EvaluatorError(f"an answer to page {message['page']}, not {task.number}")
        if "missing" in message:
            # Never, but for a fault of ours: send it whole.
            self._hot.discard(task.page.key)
            self._backlog.waiting.appendleft(task)
        elif "error" in message:
            if not task.is_cancelled:
                task.done.errback(Failure(EvaluatorError(message["error"])))
        else:
            self._settle(task, pass_, message, vocabulary)
        self._pump()

    def _settle(self, task: Task, pass_: Pass, message: dict[str, Any], vocabulary: bytes) -> None:
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
        self._document_seconds = _newer(self._document_seconds, *message["reading"])
        self._each_seconds = _newer(self._each_seconds, *message["evaluating"])
        self._metrics.evaluation_seconds.observe(answer.seconds)
        self._metrics.documents.inc(answer.documents)
        self._metrics.image_bytes.set(message["image_bytes"])
        self._shadow(task, message)
        if message["image"] and self._images is not None:
            stem, reason = message["image"]
            self._images.image_opened(Path(stem), reason)
        if "packed" in message:
            self._packed_opened(task, message["packed"])
        if not task.is_cancelled:
            task.done.callback(answer)

    def _packed_opened(self, task: Task, reason: str) -> None:
        """`reason`: why another worker's image was not, "" where it was."""
        self._metrics.shared_images.labels("damaged" if reason else "opened").inc()
        if reason:
            log.error(
                "a shared image is not believed; its documents are parsed",
                action="shared_damaged",
                partition=task.page.partition,
                error=reason,
            )

    def _shadow(self, task: Task, message: dict[str, Any]) -> None:
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
        while child is not None and child.is_ready and self._backlog.waiting:
            most = MAX_ASKED if self._backlog.waiting[0].page.key in self._hot else MAX_SENT
            if len(self._backlog.sent) >= most:
                break
            task = self._backlog.waiting.popleft()
            run = task.left()
            if not run and task.learn is None and not self._warms(task.pass_):
                task.done.callback(PageAnswer())
                continue
            if self._open is not task.pass_:
                self._open = task.pass_
                opened = task.pass_.definitions()
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
            is_hot = key in self._hot
            body = b"" if is_hot else task.page.data
            if not is_hot:
                body += self._kept_image(task, header)
            child.send(header, body)
            self._backlog.sent.append(task)
        self._watchdog.pages_changed()
        self._backlog.wake()

    def _warms(self, pass_: Pass) -> bool:
        return pass_.is_warming and self._options.evaluator in base.KEEPERS

    def _kept_image(self, task: Task, header: dict[str, Any]) -> bytes:
        """Where the child finds the image: in a file that the header names, or in what is
        answered here."""
        stem = None if self._images is None else self._images.image(task.page)
        if stem is not None:
            header["image"] = str(stem)
            return b""
        if task.packed:
            header["packed"] = len(task.packed)
        return task.packed

    def _unreadable(self, task: Task, slot: int, why: str) -> None:
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

    def ended(self, child: ChildProcess, status: str) -> None:
        noted = child.note.read()
        child.note.close()
        if self._is_stopped:
            return
        self._watchdog.ended(noted, status)
        self._backlog.take_back()
        self._saving.ended()
        if self._starts >= MAX_STARTS:
            self._child = None
            self._failed(EvaluatorBroken(f"the child process does not start: {status}"))
            return
        self.start()


def _newer(mean: float, seconds: float, count: int) -> float:
    """The mean of what one takes, with `count` more that took `seconds` together."""
    if not count:
        return mean
    return mean + (min(seconds / count, MAX_ONE_SECONDS) - mean) * NEWEST_PAGE
