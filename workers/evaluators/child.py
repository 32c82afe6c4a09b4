"""The child process: unpacks pages, evaluates them, answers. Started by workers.evaluators.process.

Standard input and output carry frames. In, `{"open": [[id, text, namespaces]...]}` starts a pass;
`{"page": n, "run": [ids], "skip": hex}` with a page as body asks for the expressions `run` over the
slots that neither an earlier page of the pass nor `skip` named. Out, `{"ready": true}` once, then
one answer a page (`answer_of`). Ends when the parent does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from typing import Any, BinaryIO

from expressions.errors import ExpressionError
from workers import pages
from workers.errors import ProtocolError
from workers.evaluators import base, frames
from workers.evaluators.note import Writer

NOTE_DESCRIPTOR = 3
PR_SET_PDEATHSIG = 1
# Compiled expressions kept between passes; one takes some kB.
MOST_COMPILED = 4096


class Child:
    """One pass at a time."""

    def __init__(self, evaluator: base.Evaluator, note: base.Note) -> None:
        self._evaluator = evaluator
        self._note = note
        self._memo: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self._compiled: dict[int, Any] = {}
        self._failures: dict[int, str] = {}
        self._seen = 0

    def open(self, expressions: list[tuple[int, str, dict[str, str]]]) -> None:
        self._compiled, self._failures, self._seen = {}, {}, 0
        for key, text, namespaces in expressions:
            self._note(key, 0)
            try:
                self._compiled[key] = self._compile(text, namespaces)
            except ExpressionError as error:
                self._failures[key] = str(error)
        self._note(base.IDLE, 0)

    def page(self, number: int, run: list[int], skip: int, data: bytes) -> dict[str, Any]:
        started = time.perf_counter()
        self._seen |= skip
        image, slots = self._evaluator.image(), 0
        for slot, probes in pages.nodes(data):
            bit = 1 << slot
            if not self._seen & bit:
                slots |= bit
                if probes:
                    image.put(slot, probes)
        self._seen |= slots
        wanted = [(key, self._compiled[key]) for key in run if key in self._compiled]
        answers = image.evaluate(wanted, None, self._note)
        for key in answers.failures:
            del self._compiled[key]
        self._failures.update(answers.failures)
        return {
            "page": number,
            "slots": f"{slots:x}",
            "members": {str(key): f"{bits:x}" for key, bits in answers.members.items() if bits},
            "failures": {str(key): self._failures[key] for key in run if key in self._failures},
            "unreadable": {str(slot): why for slot, why in answers.unreadable.items()},
            "documents": answers.documents,
            "seconds": time.perf_counter() - started,
        }

    def _compile(self, text: str, namespaces: dict[str, str]) -> Any:
        key = (text, tuple(sorted(namespaces.items())))
        if key not in self._memo:
            if len(self._memo) >= MOST_COMPILED:
                self._memo.clear()
            self._memo[key] = self._evaluator.compile(text, namespaces)
        return self._memo[key]


def serve(child: Child, source: BinaryIO, sink: BinaryIO) -> None:
    """Until `source` ends."""
    while True:
        try:
            header, body = frames.read(source)
        except EOFError:
            return
        if "open" in header:
            child.open(header["open"])
            continue
        try:
            answer = child.page(header["page"], header["run"], int(header["skip"], 16), body)
        except ProtocolError as error:
            answer = {"page": header["page"], "error": str(error)}
        sink.write(frames.pack(answer))
        sink.flush()


def die_with_parent(parent: int) -> None:
    """End even in the middle of an evaluation, when no end of file is noticed. Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It had ended before the line above.
        sys.exit(1)


def main(arguments: list[str]) -> int:
    name, parent = arguments
    # Ctrl-C goes to the whole terminal; the parent decides when the child ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(parent))
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever prints must not end up among the frames.
    os.dup2(2, 1)
    child = Child(base.load(name), Writer(NOTE_DESCRIPTOR))
    gc.freeze()
    sink.write(frames.pack({"ready": True}))
    sink.flush()
    serve(child, source, sink)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
