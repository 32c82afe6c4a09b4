"""Runs cases one after the other, each in a process of its own, and says what each has cost.

`python -m tests.bounds.child definitions|documents SEED COUNT SECONDS`: the named cases, and COUNT
drawn ones. A line of JSON for each; a case is stopped after SECONDS of CPU time. Linux alone tells
the peak of a process's memory and lets it begin anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tagmill import config
from tagmill.errors import TagmillError
from tagmill.fleet import documents as uploads
from tagmill_expressions import definition
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.lint import caret, lint
from tests.bounds import definitions, documents, vocabularies

Job = Callable[[], str]


def definition_jobs(seed: int, count: int) -> Iterator[tuple[str, Job]]:
    vocabulary = vocabularies.large()

    def job(text: str) -> str:
        """Do what the server does for lint, and a worker for the kernel."""
        try:
            checked = definition.check(text)
        except DefinitionError as error:
            caret(text, error.column or 1, error.message)
            return error.message
        found = lint(checked, None) + lint(checked, vocabulary)
        json.dumps([warning.to_dict() for warning in found])
        return f"accepted, {len(found)} warnings, the kernel {compiled(text)}"

    for name, text in definitions.named():
        yield name, lambda text=text: job(text)  # type: ignore[misc]
    for number in range(count):
        text = definitions.drawn(Random(f"{seed} {number}"))
        yield f"{number}: {text[:60]}", lambda text=text: job(text)  # type: ignore[misc]


def compiled(text: str) -> str:
    try:
        import tagmill_kernel
    except ImportError:
        return "is not there"
    try:
        return f"plans {len(tagmill_kernel.Expression(text).explain)} characters"
    except tagmill_kernel.KernelRefused as error:
        return f"refuses: {error.args[0]}"


def document_jobs(seed: int, count: int) -> Iterator[tuple[str, Job]]:
    size, nodes = config.load().document_bytes, config.load().document_nodes

    def job(data: bytes) -> str:
        """Do what the server does for an upload, up to the first query."""
        try:
            uploads.check(uploads.Upload("a", probes={"lshw": data}))
        except TagmillError as error:
            return str(error)
        return "accepted"

    for name, make in documents.named(size, nodes):
        data = make()
        yield name, lambda data=data: job(data)  # type: ignore[misc]
    for number in range(count):
        data = documents.drawn(Random(f"{seed} {number}"), size, nodes)
        yield f"{number}: {data[:30]!r}...{data[-60:]!r}", lambda data=data: job(data)  # type: ignore[misc]


def measured(name: str, job: Job, seconds: float) -> dict[str, object]:
    # What making the case has left free would hide what running it takes.
    ctypes.CDLL(None).malloc_trim(0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps(_cost(job, seconds)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    _, status, usage = os.wait4(child, 0)
    found = json.loads(told) if told else {"outcome": f"ended with {status}", "bytes": 0}
    found.setdefault("seconds", usage.ru_utime + usage.ru_stime)
    return {"name": name, **found}


def _cost(job: Job, seconds: float) -> dict[str, object]:
    soft = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 1))
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _memory("VmRSS"), time.process_time()
    outcome = job()
    spent = time.process_time() - began
    return {"outcome": outcome[:200], "seconds": spent, "bytes": _memory("VmHWM") - before}


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(kind: str, seed: str, count: str, seconds: str) -> None:
    jobs = {"definitions": definition_jobs, "documents": document_jobs}[kind]
    for name, job in jobs(int(seed), int(count)):
        print(json.dumps(measured(name, job, float(seconds))), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(*sys.argv[1:])
