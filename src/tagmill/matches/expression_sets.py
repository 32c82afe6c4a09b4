"""Expression sets: what leases and completions name by a version in place of definitions.

A version is a digest of ids and definitions, so that it means the same for ever and to every
server, whatever is live by then. It says how bitmaps are read, and nothing about what is stale:
whether a result is accepted is decided by expression, as always.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from tagmill import sql
from tagmill.errors import UnknownExpressionSet
from tagmill_wire import messages
from tagmill_wire.sets import Order

VERSION = re.compile("[0-9a-f]{32}")
# Sets whose order this process keeps: 500 expressions take some 50 kB.
MAX_KEPT = 64
# What is taken for the number of expressions where nothing is known: that of a large fleet.
MANY = 1_000
# How long a set is kept that is no more what tags name: leases under way name it.
KEEP_MINUTES = 60
# For so long a set that was seen to be stored is named without another look.
TRUSTED_SECONDS = 60.0


@dataclass(frozen=True)
class ExpressionSet:
    version: str
    order: Order


class _Current(NamedTuple):
    version: str
    is_stored: bool


class _Stored(NamedTuple):
    version: str
    ids: list[int]


class _Definition(NamedTuple):
    expected: int
    expression: int
    text: str
    namespaces: str


_lock = threading.Lock()
kept: dict[str, ExpressionSet] = {}
# When each was current and stored last, by the clock of this process.
_seen: dict[str, float] = {}


def current() -> ExpressionSet:
    """What tags name now. It is stored from here on, so that any server can say what it is."""
    now = time.monotonic()
    (found,) = sql.bound(_Current, __file__, "current_set", {})
    known = kept.get(found.version)
    if known is None or not found.is_stored:
        (stored,) = sql.bound(_Stored, __file__, "store_set", {})
        known = _keep(stored)
    _seen[known.version] = now
    return known


def with_all(wanted: Set[int], live: str | None) -> ExpressionSet:
    """What is current, where `live` is the version of what was live a moment ago. It is not asked
    for again where it has all that is wanted, and was stored lately."""
    found = known(live) if live is not None else None
    if (
        found is not None
        and time.monotonic() - _seen.get(found.version, -math.inf) < TRUSTED_SECONDS
        and wanted <= found.order.positions.keys()
    ):
        return found
    return current()


def size(live: str | None) -> int:
    """About how many expressions there are: as many as this set has, where this process has met it,
    or the one that it was asked for last. A bound where it has met none."""
    found = kept.get(live or "")
    if found is None and _seen:
        found = kept.get(max(list(_seen), key=lambda version: _seen.get(version, 0.0)))
    return MANY if found is None else len(found.order.ids)


def known(version: str) -> ExpressionSet | None:
    """The set of this version, where this process has met it."""
    return kept.get(version)


def of(versions: Collection[str]) -> dict[str, ExpressionSet]:
    """The sets of these versions. Raises UnknownExpressionSet where one is not known (any more)."""
    found = {version: kept[version] for version in versions if version in kept}
    missing = sorted(set(versions) - found.keys())
    for version in missing:
        if not VERSION.fullmatch(version):
            raise unknown(version)
    if missing:
        rows = sql.bound(_Stored, __file__, "stored_sets", {"versions": missing})
        found |= {row.version: _keep(row) for row in rows}
    for version in missing:
        if version not in found:
            raise unknown(version)
    return found


def definitions(version: str) -> messages.ExpressionSet:
    """Raises UnknownExpressionSet, also where an expression of it was deleted since."""
    rows = sql.bound(_Definition, __file__, "set_definitions", {"version": version})
    if not rows or len(rows) != rows[0].expected:
        raise unknown(version)
    expressions = [
        messages.SetExpression(row.expression, row.text, orjson.loads(row.namespaces))
        for row in rows
    ]
    return messages.ExpressionSet(version, expressions)


def forget() -> int:
    """Delete sets that were superseded a while ago; how many."""
    sql.run(__file__, "use_current_set", {})
    return sql.run(__file__, "delete_sets", {"minutes": KEEP_MINUTES})


def unknown(version: str) -> UnknownExpressionSet:
    return UnknownExpressionSet(
        f"no expression set {version[:64]}: lease again, or name the expressions by their ids"
    )


def _keep(row: _Stored) -> ExpressionSet:
    made = ExpressionSet(row.version, Order(tuple(row.ids)))
    with _lock:
        kept[row.version] = made
        while len(kept) > MAX_KEPT:
            oldest = next(iter(kept))
            del kept[oldest]
            _seen.pop(oldest, None)
    return made
