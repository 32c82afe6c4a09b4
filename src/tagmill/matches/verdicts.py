"""Verdicts on single documents, in this process: what an upload settles by itself.

A verdict is a pure function of document and expression, so it does not matter who finds it. Here
the kernel does, where it is installed, within a budget of time and steps; whatever it does not
answer is left to the workers.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

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
# What an expression is given at least, however many there are: most need a few dozen steps.
MIN_STEPS = 200
# Documents that are evaluated together: between two groups the clock is looked at.
GROUP = 32
# Requests that are stored together have as much time as so many have alone, and no more.
MAX_BUDGETS = 8
# Where many documents would take too long, as many others did, so often none is begun with until it
# is tried again.
MAX_SKIPPED = 16
# Sets that are kept: definitions come and go in previews.
MAX_SETS = 8
# Compiled expressions beyond those that are live now.
MAX_SPARE = 1_000


@dataclass(frozen=True)
class ExpressionSet:
    """The live expressions, which change rarely, ordered by id. `version` is a digest of their ids
    and definitions. `plans`: those that the kernel compiles, by id."""

    version: str
    ids: Sequence[int]
    plans: Mapping[int, Expression]


NONE = ExpressionSet("", (), {})


def current() -> ExpressionSet:
    """The set that is live now; it is read and compiled where its version was not seen before."""
    (version,) = sql.values(__file__, "live_version", {})
    return _sets.of(version)


def last() -> ExpressionSet | None:
    """What `current` said last in this process, which may be another set by now: whoever uses it
    compares its version under the lock. None before that, and after `forget`."""
    return _sets.last


def forget(superseded: ExpressionSet) -> None:
    """It is not what is live."""
    _sets.forget(superseded)


class Verdicts:
    """What expressions are on documents, which are known by their positions. Each group of GROUP
    documents has one bitmap for each expression, all as long."""

    def __init__(self, ids: Sequence[int], groups: Sequence[Sequence[bytes]] = ()) -> None:
        self.ids = ids
        self._groups = groups
        self._ones = int.from_bytes(b"\1" * len(ids), "little")
        self._joined = [b"".join(group) for group in groups]

    def column(self, position: int) -> int:
        """The expressions in their order, each in a byte, the first one lowest: 1 where it holds on
        the document. Without documents, none holds."""
        if not self._groups or not self.ids:
            return 0
        group, nth = divmod(position, GROUP)
        place, bit = divmod(nth, 8)
        joined = self._joined[group]
        size = len(joined) // len(self.ids)
        return int.from_bytes(joined[place::size], "little") >> bit & self._ones

    def by_expression(self) -> dict[int, int]:
        """For each expression the documents on which it holds, as a bitmap over their positions."""
        found = dict.fromkeys(self.ids, 0)
        for number, group in enumerate(self._groups):
            for key, bits in zip(self.ids, group, strict=True):
                found[key] |= int.from_bytes(bits, "little") << number * GROUP
        return found


UNKNOWN = Verdicts(())


def evaluate(
    documents: Sequence[Mapping[str, str]], live: ExpressionSet, requests: int = 1
) -> Verdicts:
    """Ask the kernel, for no longer than TAGMILL_SETTLE_SECONDS for each of so many requests. Each
    document is the probes of a node. An expression that the kernel refuses, or that takes too many
    steps, has no verdict; where a document is refused, or the time is up, or the kernel fails, none
    has."""
    if not HAS_KERNEL or not documents or not live.plans:
        return UNKNOWN
    # This thread's own time: a busy machine does not make documents longer.
    ends = time.thread_time() + _seconds(requests)
    try:
        return _evaluate(documents, live, ends)
    except tagmill_kernel.KernelError as error:
        log.info("left to the workers", action="not_settled", error=str(error))
    except BaseException as error:
        # A panic of the kernel is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        log.error("the kernel failed: left to the workers", action="kernel_panic", error=str(error))
    return UNKNOWN


def fits(count: int, live: ExpressionSet, requests: int = 1) -> bool:
    """Whether so many documents are worth to begin with, by what a group of them took last."""
    return count <= GROUP or _paces.fits(live, count, _seconds(requests))


def _seconds(requests: int) -> float:
    return load().settle_seconds * min(requests, MAX_BUDGETS)


def _version(digests: Mapping[int, bytes]) -> str:
    """As the view `live_version` makes it."""
    parts = [key.to_bytes(8, "big") + digest for key, digest in digests.items()]
    return hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()


class _Sets:
    """The sets that were live last, for all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[str, ExpressionSet] = {}
        self._plans: dict[bytes, Expression | None] = {}
        self.last: ExpressionSet | None = None

    def of(self, version: str) -> ExpressionSet:
        found = self._sets.get(version)
        self.last = found if found is not None else self._read()
        return self.last

    def forget(self, superseded: ExpressionSet) -> None:
        if self.last is superseded:
            self.last = None

    def _read(self) -> ExpressionSet:
        # What is live may have changed again since: the rows say which version they are.
        rows = sql.rows(__file__, "live", {})
        digests = {key: bytes(digest) for key, digest in rows}
        version = _version(digests)
        with self._lock:
            missing = [key for key, digest in digests.items() if digest not in self._plans]
            self._compile(missing)
            found = {key: self._plans.get(digest) for key, digest in digests.items()}
            plans = {key: plan for key, plan in found.items() if plan is not None}
            made = ExpressionSet(version, tuple(digests), plans)
            self._sets = {**dict(list(self._sets.items())[-MAX_SETS:]), version: made}
            if len(self._plans) > len(digests) + MAX_SPARE:
                kept = set(digests.values())
                self._plans = {key: plan for key, plan in self._plans.items() if key in kept}
        return made

    def _compile(self, missing: Sequence[int]) -> None:
        if not HAS_KERNEL:
            return
        found = StoredExpression.objects.filter(id__in=missing)
        for digest, text, namespaces in found.values_list("digest", "text", "namespaces"):
            self._plans[bytes(digest)] = _compiled(text, namespaces)


class _Paces:
    """Seconds that a document took, of many that were evaluated together, by the version of the
    set; and how often none was begun with since. Two threads may overwrite each other's."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._skipped = 0

    def note(self, live: ExpressionSet, seconds: float) -> None:
        others = [item for item in list(self._seconds.items()) if item[0] != live.version]
        self._seconds = {**dict(others[-MAX_SETS:]), live.version: seconds}
        self._skipped = 0

    def fits(self, live: ExpressionSet, count: int, seconds: float) -> bool:
        if self._seconds.get(live.version, 0.0) * count <= seconds:
            return True
        self._skipped += 1
        return self._skipped > MAX_SKIPPED


def _evaluate(documents: Sequence[Mapping[str, str]], live: ExpressionSet, ends: float) -> Verdicts:
    ids, chosen, groups = list(live.plans), list(live.plans.values()), list[Sequence[bytes]]()
    began = time.thread_time()
    for first in range(0, len(documents), GROUP):
        # Where all of it would take too long, some of it is no use.
        now = time.thread_time()
        if first:
            _paces.note(live, (now - began) / first)
            if now + (now - began) / first * (len(documents) - first) > ends:
                return UNKNOWN
        found = _group(documents[first : first + GROUP], chosen, ends)
        answered = cast(Sequence[bytes], found)
        if any(kind is not bytes for kind in set(map(type, found))):
            kept = [isinstance(bits, bytes) for bits in found]
            answered = list(itertools.compress(answered, kept))
            ids, chosen = (
                list(itertools.compress(ids, kept)),
                list(itertools.compress(chosen, kept)),
            )
            groups = [list(itertools.compress(group, kept)) for group in groups]
        groups.append(answered)
    return Verdicts(ids, groups)


def _group(
    documents: Sequence[Mapping[str, str]], plans: Sequence[Expression], ends: float
) -> Sequence[bytes | tagmill_kernel.BudgetExceeded]:
    """For each expression the documents that it holds on, unless it took too many steps."""
    # A new one each time: what an image has seen before is parsed in half the time, but each
    # evaluation looks at it again, which costs up to a hundred times as much.
    image = tagmill_kernel.PartitionImage()
    for position, probes in enumerate(documents):
        image.put(position, composition(probes))
    each = max(0.0, ends - time.thread_time()) * STEPS_PER_SECOND / max(1, len(plans))
    budget = max(MIN_STEPS, min(int(each), load().settle_steps * len(documents)))
    return image.evaluate(plans, None, budget)


def _compiled(text: str, namespaces: Mapping[str, str]) -> Expression | None:
    try:
        return tagmill_kernel.Expression(text, namespaces)
    except tagmill_kernel.KernelRefused:
        return None


_sets = _Sets()
_paces = _Paces()
