"""The child process: unpacks pages, evaluates them, answers. Started by `process`.

Standard input and output carry frames. In, `{"open": [[id, text, namespaces]...], "seconds": s}`
starts a pass, in which one expression may take so long.
`{"page": n, "key": k, "run": [ids], "skip": hex}`, with a page as body, asks for the expressions
`run` over the slots that neither an earlier page of the pass nor `skip` named; the body may be left
out where an earlier answer said that the page with that key is held. `"image": stem` names files
with its image, which the answer names again, with the reason where they are not good;
`"packed": n` says that the last n bytes of the body are its image, of another worker's making, and
the answer has the reason why it is not believed, or "".
`"learn": rev` asks for the vocabulary of those slots' nodes with a higher rev, too;
`"singly": true` for one expression after the other. `{"drop": [keys]}` forgets pages.
`{"save": stem, "key": k}`, with the page as body unless it is held, writes its image to files. Out,
`{"ready": true}` once, then one answer a page, with the vocabulary as body; and one for each image
saved, whenever that is done. Ends when the parent does, and with OUT_OF_MEMORY when it would need
more than it may.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import queue
import resource
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from tagmill_expressions.errors import ExpressionError
from tagmill_worker import pages
from tagmill_worker.cache import files
from tagmill_worker.errors import ImageRefused, ProtocolError
from tagmill_worker.evaluators import base, frames, saved
from tagmill_worker.evaluators.note import Writer
from tagmill_worker.evaluators.saved import Held

NOTE_DESCRIPTOR = 3
OUT_OF_MEMORY = errno.ENOMEM
PR_SET_PDEATHSIG = 1
# Compiled expressions kept between passes; one takes some kB.
MAX_COMPILED = 4096
# A vocabulary of 75 kB: 37 kB in a third of a millisecond.
ZSTD_LEVEL = 3


class Child:
    """One pass at a time. Images of pages are held under their keys within `most_bytes`; when that
    is full, newcomers pass through (see tagmill_worker.store)."""

    def __init__(
        self,
        evaluator: base.Evaluator,
        note: base.Note,
        most_bytes: int = 0,
        shadow: float = 0.0,
    ) -> None:
        self._evaluator = evaluator
        self._note = note
        self._most = most_bytes if evaluator.keeps_images else 0
        self._shadow = shadow
        self._held: dict[int, Held] = {}
        self._bytes = 0
        self._sizes: dict[int, int] = {}
        self._memo: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self._compiled: dict[int, Any] = {}
        self._failures: dict[int, str] = {}
        self._seen = 0
        self._seconds = base.EVALUATION_SECONDS

    def open(
        self,
        expressions: list[tuple[int, str, dict[str, str]]],
        seconds: float = base.EVALUATION_SECONDS,
    ) -> None:
        self._compiled, self._failures, self._seen = {}, {}, 0
        self._seconds = seconds
        for key, text, namespaces in expressions:
            self._note(key, 0)
            try:
                self._compiled[key] = self._compile(text, namespaces)
            except ExpressionError as error:
                self._failures[key] = str(error)
        self._note(base.IDLE, 0)

    def page(self, header: dict[str, Any], data: bytes) -> dict[str, Any]:
        """The answer to one page; without data, to one that is held. Its `vocabulary` is bytes."""
        started = time.perf_counter()
        number, run = header["page"], header["run"]
        held = self._held.get(header["key"])
        is_held = held is not None
        made: dict[str, Any] = {"reading": [0.0, 0], "image": []}
        if held is None:
            if not data:
                return {"page": number, "missing": True}
            held, made = self._made(header, data)
            is_held = self._keep(header["key"], held)
        self._seen |= int(header["skip"], 16)
        slots = held.slots & ~self._seen
        self._seen |= slots
        wanted = [(key, self._compiled[key]) for key in run if key in self._compiled]
        # All of them, as a rule: then the image need not look at a bitmap.
        chosen = None if slots == held.slots else slots
        learn = header.get("learn")
        learnt = 0 if learn is None else held.newer(learn, slots)
        evaluating = time.perf_counter()
        answers = held.image.evaluate(
            wanted, chosen, self._note, learnt, header["singly"], seconds=self._seconds
        )
        # What it learns beside is no evaluation.
        evaluations = 0 if learnt else len(wanted) * slots.bit_count()
        evaluating = time.perf_counter() - evaluating
        if is_held:
            self._measure(header["key"], held)
        for key in answers.failures:
            del self._compiled[key]
        self._failures.update(answers.failures)
        vocabulary = b""
        if answers.vocabulary is not None and answers.vocabulary.documents:
            vocabulary = zstandard.compress(answers.vocabulary.dump(), ZSTD_LEVEL)
        return {
            "page": number,
            "held": is_held,
            "slots": f"{slots:x}",
            "members": {str(key): f"{bits:x}" for key, bits in answers.members.items() if bits},
            "failures": {str(key): self._failures[key] for key in run if key in self._failures},
            "unreadable": {str(slot): why for slot, why in answers.unreadable.items()},
            "documents": answers.documents,
            "shadowed": answers.shadowed,
            "disagreements": answers.disagreements,
            "seconds": time.perf_counter() - started,
            "evaluating": [evaluating, evaluations],
            "image_bytes": self._bytes,
            **made,
            "vocabulary": vocabulary,
        }

    def _made(self, header: dict[str, Any], data: bytes) -> tuple[Held, dict[str, Any]]:
        """The image of a page, from files, from another worker, or parsed; and what is told of it:
        `reading`, `image`, and `packed` where another worker's came along."""
        told: dict[str, Any] = {"reading": [0.0, 0], "image": []}
        held: Held | None = None
        packed = header.get("packed", 0)
        data, image = (data[:-packed], data[-packed:]) if packed else (data, b"")
        if "image" in header:
            held, reason = self._open(header["image"], data)
            told["image"] = [header["image"], reason]
        elif packed:
            held, told["packed"] = self._unpack(image, data)
        if held is None:
            # What an image in a file takes says nothing about parsing.
            begun = time.perf_counter()
            held = self._image(data)
            told["reading"] = [time.perf_counter() - begun, len(held.revs)]
        return held, told

    def drop(self, keys: list[int]) -> None:
        for key in keys:
            held = self._held.pop(key, None)
            if held is not None:
                self._bytes -= self._sizes.pop(key)

    def to_save(self, key: int, data: bytes) -> Held | None:
        """The image of a page, which is made where it is not held; None where neither it nor its
        page is here. Raises ProtocolError."""
        held = self._held.get(key)
        return self._image(data) if held is None and data else held

    def save(self, held: Held, stem: str) -> dict[str, Any]:
        """The answer. On a thread of its own: a disk may take its time, and nobody waits."""
        try:
            size = saved.save(self._evaluator, held, Path(stem))
        except (OSError, ImageRefused) as error:
            return {"saved": stem, "reason": str(error)}
        return {"saved": stem, "reason": "", "bytes": size}

    def _open(self, stem: str, data: bytes) -> tuple[Held | None, str]:
        """The image in files, or the reason why it is not."""
        source = partial(pages.nodes, data)
        try:
            return saved.load(self._evaluator, Path(stem), source, self._shadow), ""
        except (OSError, ImageRefused) as error:
            return None, str(error)

    def _unpack(self, packed: bytes, data: bytes) -> tuple[Held | None, str]:
        """Another worker's image of this page, or the reason why it is not believed."""
        if not self._evaluator.keeps_images:
            return None, f"{self._evaluator.name} has no use for it"
        source = partial(pages.nodes, data)
        try:
            page = files.digest(data)
            held = saved.load_packed(self._evaluator, page, packed, source, self._shadow)
        except (OSError, ImageRefused, ProtocolError) as error:
            return None, str(error)
        return held, ""

    def _image(self, data: bytes) -> Held:
        image, slots = self._evaluator.image(partial(pages.nodes, data), self._shadow), 0
        revs: dict[int, int] = {}
        for slot, rev, probes in pages.entries(data):
            slots |= 1 << slot
            revs[slot] = rev
            if probes:
                self._note(base.PARSING, slot)
                image.put(slot, probes)
        self._note(base.IDLE, 0)
        return Held(image, slots, revs)

    def _keep(self, key: int, held: Held) -> bool:
        size = held.image.nbytes
        if not self._most or self._bytes + size > self._most:
            return False
        self._held[key] = held
        self._sizes[key] = size
        self._bytes += size
        return True

    def _measure(self, key: int, held: Held) -> None:
        """Counts what an image found out about itself while it was asked."""
        size = held.image.nbytes
        self._bytes += size - self._sizes[key]
        self._sizes[key] = size

    def _compile(self, text: str, namespaces: dict[str, str]) -> Any:
        key = (text, tuple(sorted(namespaces.items())))
        if key not in self._memo:
            if len(self._memo) >= MAX_COMPILED:
                self._memo.clear()
            self._memo[key] = self._evaluator.compile(text, namespaces)
        return self._memo[key]


class _Answers:
    """Frames out, from either thread."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._lock = threading.Lock()

    def send(self, answer: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._sink.write(frames.pack(answer, body))
            self._sink.flush()


def serve(child: Child, source: BinaryIO, sink: BinaryIO) -> None:
    """Until `source` ends."""
    answers = _Answers(sink)
    saves: queue.SimpleQueue[tuple[Held, str]] | None = None
    while True:
        try:
            header, body = frames.read(source)
        except EOFError:
            return
        if "open" in header:
            child.open(header["open"], header["seconds"])
            continue
        if "drop" in header:
            child.drop(header["drop"])
            continue
        if "save" in header:
            if saves is None:
                saves = queue.SimpleQueue()
                threading.Thread(target=_save, args=(child, saves, answers), daemon=True).start()
            try:
                held = child.to_save(header["key"], body)
            except ProtocolError as error:
                answers.send({"saved": header["save"], "reason": str(error)})
                continue
            if held is None:
                answers.send({"saved": header["save"], "missing": True})
            else:
                saves.put((held, header["save"]))
            continue
        try:
            answer = child.page(header, body)
        except ProtocolError as error:
            answer = {"page": header["page"], "error": str(error)}
        answers.send(answer, answer.pop("vocabulary", b""))


def _save(child: Child, saves: queue.SimpleQueue[tuple[Held, str]], answers: _Answers) -> None:
    while True:
        answers.send(child.save(*saves.get()))


def die_with_parent(parent: int) -> None:
    """End even in the middle of an evaluation, when no end of file is noticed. Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It had ended before the line above.
        sys.exit(1)


def limit_memory(most_bytes: int) -> None:
    """Better this child than whatever the host's kernel would choose. 0: no limit. What it shares
    with others, as libraries, does not count."""
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


def main(arguments: list[str]) -> int:
    name, parent, most_bytes, shadow, memory = arguments
    # Ctrl-C goes to the whole terminal; the parent decides when the child ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(parent))
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever prints must not end up among the frames.
    os.dup2(2, 1)
    limit_memory(int(memory))
    evaluator = base.load(name)
    child = Child(evaluator, Writer(NOTE_DESCRIPTOR), int(most_bytes), float(shadow))
    gc.freeze()
    sink.write(frames.pack({"ready": True}))
    sink.flush()
    try:
        serve(child, source, sink)
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
