"""Why a node is in a tag, or out: explained now, and beside what is stored."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson
from django.db.models.functions import Now

from tagmill.config import load
from tagmill.errors import Busy, ManualTag, NotFound, TooExpensive
from tagmill.fleet.models import Document, Node
from tagmill.matches.expressions import check, digest
from tagmill.matches.models import EffectiveMatch
from tagmill.tags.models import Tag
from tagmill.work.models import Worker
from tagmill_wire import bitmap

# A document of 4 MiB takes some 60 MB as a tree.
MAX_BYTES = 1024 * 1024 * 1024
# The size of what a process may print. The tree of a definition of 16 KiB, with what its parts
# found, has some 1 MB.
MAX_ANSWER_BYTES = 8 * 1024 * 1024
MAX_ERROR_BYTES = 2000
# Processes at a time, of a whole server; each takes a core for as long as a definition may.
MAX_AT_ONCE = 4
# How long a request waits for a free process, in a thread that other requests need.
WAIT_SECONDS = 1.0
# A process starts in a tenth of a second.
START_SECONDS = 5.0

# Held for as long as a process runs.
places = threading.BoundedSemaphore(load().part(MAX_AT_ONCE))


@dataclass(frozen=True)
class Stored:
    """What the last evaluation found. `is_fresh`: nothing in the partition has changed since."""

    is_member: bool
    is_fresh: bool
    rev: int
    evaluated_at: datetime


@dataclass(frozen=True)
class EvaluatorChoice:
    """The evaluator that workers use for a definition, and why. `name` is None without a worker."""

    name: Literal["kernel", "lxml"] | None
    reason: str
    plan: str | None


@dataclass(frozen=True)
class NodeExplanation:
    """`explanation` is expressions.explain's; None for a node without documents, which matches
    nothing. `stored`: None where it was never evaluated."""

    node: Node
    definition: str
    namespaces: Mapping[str, str]
    verdict: bool
    explanation: dict[str, Any] | None
    evaluator: EvaluatorChoice
    stored: Stored | None


def of_tag(name: str, system_id: str) -> NodeExplanation:
    """Explain a tag's published definition, or the pending one where none is published yet.

    Raises NotFound, ManualTag, TooExpensive, Busy.
    """
    rows = Tag.objects.select_related("expression", "pending_expression")
    tag = None if "\0" in name else rows.filter(name=name).first()
    if tag is None:
        raise NotFound(f"there is no tag {name!r}")
    expression = tag.expression or tag.pending_expression
    if expression is None:
        raise ManualTag(f"{name!r} is assigned by hand: there is nothing to explain")
    return of_definition(expression.text, expression.namespaces, system_id)


def of_definition(text: str, namespaces: Mapping[str, str], system_id: str) -> NodeExplanation:
    """Raises InvalidDefinition, TooLarge, NotFound, DocumentDamaged, TooExpensive, Busy."""
    check(text, namespaces)
    nodes = Node.objects.select_related("partition").filter(deleted_at=None)
    node = None if "\0" in system_id else nodes.filter(system_id=system_id).first()
    if node is None:
        raise NotFound(f"there is no node {system_id!r}")
    stored = _stored(text, namespaces, node)
    probes = {item.probe: item.xml for item in Document.objects.filter(node=node)}
    found = _explained(text, namespaces, probes)
    return NodeExplanation(
        node=node,
        definition=text,
        namespaces=namespaces,
        verdict=bool(probes) and found["explanation"]["verdict"],
        explanation=found["explanation"] if probes else None,
        evaluator=_evaluator(found["kernel"]),
        stored=stored,
    )


def _stored(text: str, namespaces: Mapping[str, str], node: Node) -> Stored | None:
    match = EffectiveMatch.objects.filter(
        expression__digest=digest(text, namespaces), partition=node.partition_id
    ).first()
    if match is None:
        return None
    members = bitmap.from_bytes(match.members)
    return Stored(
        is_member=bool(members >> node.slot & 1),
        is_fresh=match.rev == node.partition.rev,
        rev=match.true_at,
        evaluated_at=match.evaluated_at,
    )


def _evaluator(kernel: dict[str, Any]) -> EvaluatorChoice:
    silent = timedelta(seconds=load().lease_seconds)
    live = set(
        Worker.objects.filter(last_heartbeat__gt=Now() - silent).values_list("evaluator", flat=True)
    )
    if not live:
        return EvaluatorChoice(None, "no worker is running", kernel["plan"])
    if "kernel" not in live:
        return EvaluatorChoice("lxml", "no worker that is running has the kernel", None)
    if kernel["compiles"] is None:
        return EvaluatorChoice(
            "kernel", "workers have it; what it says to the definition, only they know", None
        )
    if not kernel["compiles"]:
        return EvaluatorChoice("lxml", f"the kernel leaves it to lxml: {kernel['refused']}", None)
    return EvaluatorChoice("kernel", "the kernel compiles all of it", kernel["plan"])


def _explained(
    text: str, namespaces: Mapping[str, str], probes: Mapping[str, str]
) -> dict[str, Any]:
    seconds = load().evaluation_seconds
    asked = {
        "text": text,
        "namespaces": dict(namespaces),
        "probes": dict(probes),
        "seconds": seconds,
        "bytes": MAX_BYTES,
        "answer_bytes": MAX_ANSWER_BYTES,
    }
    if not places.acquire(timeout=WAIT_SECONDS):
        raise Busy("other explanations are running: try again", retry_after=int(seconds) + 1)
    try:
        code, printed, error = _run(orjson.dumps(asked), seconds + START_SECONDS)
    finally:
        places.release()
    if code is None or code < 0:
        raise TooExpensive(
            f"the definition takes longer than {seconds:g} s on this node, or too much memory"
            " (TAGMILL_EVALUATION_SECONDS)",
            limit=seconds,
        )
    if code:
        raise RuntimeError(f"explain_child ended with {code}: {error!r}")
    answer: dict[str, Any] = orjson.loads(printed)
    if "error" in answer:
        raise TooExpensive(answer["error"])
    return answer


def _run(asked: bytes, seconds: float) -> tuple[int | None, bytes, bytes]:
    """Run the child: its return code (None: it took longer), output, and the end of its errors.

    It prints into files, of which the kernel bounds the size: a pipe has no bound.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "tagmill.tags.explain_child"],
                input=asked,
                stdout=out,
                stderr=errors,
                timeout=seconds,
                env=_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, b"", b""
        out.seek(0)
        errors.seek(max(0, errors.tell() - MAX_ERROR_BYTES))
        return ended.returncode, out.read(MAX_ANSWER_BYTES), errors.read(MAX_ERROR_BYTES)


def _environment() -> dict[str, str]:
    """What it takes to find programs and packages, and no more: this process has passwords."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
