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
# The names and values of markup that was seen are kept, so that it is recalled. More than this, and
# all is forgotten: a fleet's markup takes a few MiB.
MAX_IMAGE_BYTES = 64 * 1024 * 1024
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
    return _kernel.evaluate(documents, expressions)


class _Kernel:
    """One image for all requests of the process, which take turns: each takes a millisecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[Live, Expression | None] = {}
        self._image = tagmill_kernel.PartitionImage() if HAS_KERNEL else None

    def evaluate(
        self, documents: Sequence[Mapping[str, str]], expressions: Sequence[Live]
    ) -> Verdicts:
        ends = time.monotonic() + load().settle_seconds
        with self._lock:
            try:
                self._compile(expressions)
                planned = {
                    item.id: plan
                    for item in expressions
                    if (plan := self._plans.get(item)) is not None
                }
                return Verdicts(self._evaluate(documents, planned, ends))
            except tagmill_kernel.KernelError as error:
                self._begin_anew()
                log.info("left to the workers", action="not_settled", error=str(error))
            except BaseException as error:
                self._begin_anew()
                if type(error).__name__ != "PanicException":
                    raise
                log.error("the kernel failed", action="kernel_panic", error=str(error))
        return Verdicts({})

    def _evaluate(
        self, documents: Sequence[Mapping[str, str]], planned: dict[int, Expression], ends: float
    ) -> dict[int, int]:
        members = dict.fromkeys(planned, 0)
        for first in range(0, len(documents), GROUP):
            group = documents[first : first + GROUP]
            for key, bits in self._group(group, planned, ends).items():
                members[key] |= bits << first
            members = {key: members[key] for key in planned}
            if time.monotonic() > ends and first + GROUP < len(documents):
                return {}
        return members

    def _group(
        self, documents: Sequence[Mapping[str, str]], planned: dict[int, Expression], ends: float
    ) -> dict[int, int]:
        """Expressions that take too many steps leave `planned`."""
        assert self._image is not None
        for position, probes in enumerate(documents):
            self._image.put(position, composition(probes))
        left = max(0.0, ends - time.monotonic())
        each = int(left * STEPS_PER_SECOND / max(1, len(planned)))
        most = load().settle_steps * len(documents)
        found = self._image.evaluate(
            list(planned.values()), None, max(MIN_STEPS, min(each, most))
        )
        for position in range(len(documents)):
            self._image.remove(position)
        if self._image.nbytes > MAX_IMAGE_BYTES:
            self._begin_anew()
        answers = {}
        for key, result in zip(list(planned), found, strict=True):
            if isinstance(result, bytes):
                answers[key] = int.from_bytes(result, "little")
            else:
                del planned[key]
        return answers

    def _compile(self, expressions: Sequence[Live]) -> None:
        missing = {item.id: item for item in expressions if item not in self._plans}
        if not missing:
            return
        if len(self._plans) > len(expressions) + MAX_SPARE:
            self._plans = {item: self._plans[item] for item in expressions if item in self._plans}
        found = StoredExpression.objects.filter(id__in=list(missing))
        for key, digest, text, namespaces in found.values_list(
            "id", "digest", "text", "namespaces"
        ):
            self._plans[Live(key, bytes(digest))] = _compiled(text, namespaces)

    def _begin_anew(self) -> None:
        self._image = tagmill_kernel.PartitionImage()


def _compiled(text: str, namespaces: Mapping[str, str]) -> Expression | None:
    try:
        return tagmill_kernel.Expression(text, namespaces)
    except tagmill_kernel.KernelRefused:
        return None


_kernel = _Kernel()
