"""Why something is not ready yet: what tags, rebuilds and previews wait for.

It is derived from what is stale, who lives and what is leased, in one statement, however many are
asked about. Nothing is stored, and no lock is taken.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tagmill import sql
from tagmill.config import load

Reason = Literal["failure", "no_worker", "postponed", "worker", "evaluation"]
# What somebody has to do something about comes first.
REASONS: tuple[Reason, ...] = ("failure", "no_worker", "postponed", "worker", "evaluation")
# Bounds one answer where there are thousands of clusters: the rest wait for the same reasons.
MAX_WAITS = 20


@dataclass(frozen=True)
class Wait:
    """One thing that is waited for. `cluster` is None for a failure; `partitions` wait for it."""

    reason: Reason
    cluster: str | None
    partitions: int
    message: str


@dataclass(frozen=True)
class Waits:
    """Waits by the ids of what was asked about; ids of what waits for nothing are left out."""

    expressions: dict[int, list[Wait]] = field(default_factory=dict)
    rebuilds: dict[int, list[Wait]] = field(default_factory=dict)
    previews: dict[int, list[Wait]] = field(default_factory=dict)


class _Row(NamedTuple):
    """What the query says of one cluster, or of one failed expression."""

    failure: str | None
    cluster: str | None
    workers: int
    partitions: int
    held: int
    postponed: int
    seconds: float


def waiting_for(
    expressions: Sequence[int] = (), rebuilds: Sequence[int] = (), previews: Sequence[int] = ()
) -> Waits:
    """The gravest reasons first, MAX_WAITS of each. One statement; none where nothing is asked."""
    if not (expressions or rebuilds or previews):
        return Waits()
    values = {
        "expressions": list(expressions),
        "rebuilds": list(rebuilds),
        "previews": list(previews),
        "seconds": load().lease_seconds,
    }
    found: dict[str, dict[int, list[Wait]]] = defaultdict(lambda: defaultdict(list))
    for kind, key, *said in sql.rows(__file__, "waiting", values):
        found[kind][key].extend(_waits(_Row._make(said)))
    return Waits(*(_gravest(found[kind]) for kind in ("expression", "rebuild", "preview")))


def live_workers() -> list[tuple[int, str, int]]:
    """For every cluster: its id, its name, and the live workers that may answer for it."""
    found = sql.rows(__file__, "live_workers", {"seconds": load().lease_seconds})
    return [(cluster, name, int(workers)) for cluster, name, workers in found]


def _gravest(found: dict[int, list[Wait]]) -> dict[int, list[Wait]]:
    return {
        key: sorted(waits, key=lambda wait: REASONS.index(wait.reason))[:MAX_WAITS]
        for key, waits in found.items()
    }


def _waits(row: _Row) -> Iterator[Wait]:
    cluster = row.cluster
    some, wait = _some(row.partitions)
    if row.failure is not None:
        yield Wait("failure", None, row.partitions, f"a failed expression: {row.failure}")
        return
    if not row.workers and not row.held:
        message = (
            f"no worker for cluster {cluster}: {some} {wait} until one runs with a token for it"
        )
        yield Wait("no_worker", cluster, row.partitions, message)
        return
    if row.postponed:
        given, wait = _some(row.postponed)
        message = (
            f"another attempt: workers gave {given} in cluster {cluster} back, which {wait} for up"
            f" to {math.ceil(row.seconds)} s more; the log of workers says why"
        )
        yield Wait("postponed", cluster, row.postponed, message)
    left = row.partitions - row.postponed
    some, wait = _some(left)
    if row.held:
        message = f"evaluation: workers hold {row.held} of {some} in cluster {cluster}"
        yield Wait("evaluation", cluster, left, message)
    elif left:
        yield Wait("worker", cluster, left, f"a worker: {some} {wait} in cluster {cluster}")


def _some(partitions: int) -> tuple[str, str]:
    return ("1 partition", "waits") if partitions == 1 else (f"{partitions} partitions", "wait")
