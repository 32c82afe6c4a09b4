"""What waits for evaluation: the one module that says which matches are fresh.

A match is fresh when its effective rev is its partition's; a missing one is stale. An expression
counts while it is live. The views `effective_match` and `live_expression` say both, to everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tagmill import sql


class Stale(NamedTuple):
    """Expressions, ascending, that wait in a partition for the same. `base_rev`: the rev of their
    stored matches; None when there are none, or a rebuild is forced."""

    partition: int
    expressions: list[int]
    base_rev: int | None
    is_preview: bool = False
    """Whether somebody waits for them in a preview."""
    is_forced: bool = False
    """Whether they were evaluated before, and somebody asked for them again."""


def any_live() -> bool:
    """Whether anything is to be evaluated at all."""
    return sql.values(__file__, "any_live", {}) == [True]


def stale(partitions: Sequence[int]) -> list[Stale]:
    """What is stale in these partitions, ordered by partition and by first expression."""
    return sql.bound(Stale, __file__, "stale", {"partitions": list(partitions)})


def any_in(partitions: Sequence[int]) -> bool:
    """Whether anything is stale in one of these partitions."""
    return sql.bound(bool, __file__, "any_stale_in", {"partitions": list(partitions)}) == [True]


def stale_partitions() -> list[int]:
    return sql.values(__file__, "stale_partitions", {})


def stale_for(expressions: Sequence[int]) -> list[int]:
    """Partitions where one of these expressions, live or not, has no fresh match."""
    return sql.values(__file__, "stale_for", {"expressions": list(expressions)})


def by_partition(partitions: Iterable[int]) -> dict[int, int]:
    """{partition id: matches that are not fresh}, 0 included. One query."""
    wanted = list(partitions)
    found = sql.rows(__file__, "partition_staleness", {"partitions": wanted})
    return dict.fromkeys(wanted, 0) | dict(found)


def by_cluster() -> dict[tuple[int, int], int]:
    """{(expression, cluster): partitions where the live expression is stale}. One query."""
    found = sql.rows(__file__, "stale_matches", {})
    return {(expression, cluster): count for expression, cluster, count in found}
