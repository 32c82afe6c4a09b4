"""Verdicts on single documents, in this process: what an upload settles by itself.

A verdict is a pure function of document and expression, so it does not matter who finds it. Here the
kernel does, where it is installed, within a budget of time and steps; whatever it does not answer
is left to the workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from tagmill import sql
from tagmill.config import load
from tagmill.matches.models import Expression as StoredExpression
from tagmill_expressions.documents import composition

try:
    import tagmill_kernel
except ImportError:
    HAS_KERNEL = False
else:
    HAS_KERNEL = True

if TYPE_CHECKING:
    from tagmill_kernel import Expression

log = structlog.get_logger("tagmill.verdicts")

# A step is a node looked at, and takes some 20 ns.
STEPS_PER_SECOND = 50_000_000
# What an expression is given at least, however many there are: most need a few dozen for a document.
MIN_STEPS = 200
# Documents that are evaluated together: between two groups the clock is looked at.
GROUP = 32
# Compiled expressions beyond those that are live now: definitions come and go in previews.
MAX_SPARE = 1_000


class Live(NamedTuple):
    """A live expression. Ids may come again after a restore; digests do not."""

    id: int
    digest: bytes


class Verdicts(NamedTuple):
    """`members`: for each expression that was answered, the documents on which it holds, as a bitmap
    over their positions."""

    members: dict[int, int]


def live() -> list[Live]:
    """The expressions that count, ordered by id."""
    found = sql.rows(__file__, "live", {})
    return [Live(key, bytes(digest)) for key, digest in found]


def evaluate(documents: Sequence[Mapping[str, str]], expressions: Sequence[Live]) -> Verdicts:
    """Ask the kernel, for no longer than TAGMILL_SETTLE_SECONDS. Each document is the probes of a
    node. An expression that it refuses, or that takes too many steps, has no verdict; where a
    document is refused, or the time is up, or the kernel fails, none has."""
    if not HAS_KERNEL or not documents or not expressions:
        return Verdicts({})
    ends = time.monotonic() + load().settle_seconds
    try:
        return Verdicts(_evaluate(documents, _plans.of(expressions), ends))
    except tagmill_kernel.KernelError as error:
        log.info("left to the workers", action="not_settled", error=str(error))
    except BaseException as error:
        # A panic of the kernel is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        log.error("the kernel failed: left to the workers", action="kernel_panic", error=str(error))
    return Verdicts({})


class _Plans:
    """The compiled expressions that are live, and some that were, for all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[Live, Expression | None] = {}

    def of(self, expressions: Sequence[Live]) -> dict[int, Expression]:
        """By id; without those that the kernel refuses."""
        with self._lock:
            missing = [item.id for item in expressions if item not in self._plans]
            if missing:
                self._compile(missing, expressions)
            found = {item.id: self._plans.get(item) for item in expressions}
        return {key: plan for key, plan in found.items() if plan is not None}

    def _compile(self, missing: Sequence[int], expressions: Sequence[Live]) -> None:
        if len(self._plans) > len(expressions) + MAX_SPARE:
            self._plans = {item: self._plans[item] for item in expressions if item in self._plans}
        found = StoredExpression.objects.filter(id__in=missing)
        for key, digest, text, namespaces in found.values_list(
            "id", "digest", "text", "namespaces"
        ):
            self._plans[Live(key, bytes(digest))] = _compiled(text, namespaces)


def _evaluate(
    documents: Sequence[Mapping[str, str]], plans: dict[int, Expression], ends: float
) -> dict[int, int]:
    members = dict.fromkeys(plans, 0)
    for first in range(0, len(documents), GROUP):
        if first and time.monotonic() > ends:
            return {}
        answers = _group(documents[first : first + GROUP], plans, ends)
        plans = {key: plans[key] for key in answers}
        members = {key: members[key] | bits << first for key, bits in answers.items()}
    return members


def _group(
    documents: Sequence[Mapping[str, str]], plans: dict[int, Expression], ends: float
) -> dict[int, int]:
    """The documents that each expression holds on, of those expressions that took few steps."""
    # A new one each time: what an image has seen before is parsed in half the time, but is looked at
    # again by each evaluation, which costs a hundred times as much.
    image = tagmill_kernel.PartitionImage()
    for position, probes in enumerate(documents):
        image.put(position, composition(probes))
    each = max(0.0, ends - time.monotonic()) * STEPS_PER_SECOND / max(1, len(plans))
    budget = max(MIN_STEPS, min(int(each), load().settle_steps * len(documents)))
    found = image.evaluate(list(plans.values()), None, budget)
    return {
        key: int.from_bytes(result, "little")
        for key, result in zip(plans, found, strict=True)
        if isinstance(result, bytes)
    }


def _compiled(text: str, namespaces: Mapping[str, str]) -> Expression | None:
    try:
        return tagmill_kernel.Expression(text, namespaces)
    except tagmill_kernel.KernelRefused:
        return None


_plans = _Plans()
