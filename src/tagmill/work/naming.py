"""How leases name expressions: by the bitmaps of an expression set, or one by one."""

from __future__ import annotations

from collections.abc import Sequence

from tagmill.matches import expression_sets
from tagmill.matches.expression_sets import ExpressionSet
from tagmill.matches.staleness import Stale
from tagmill_wire.messages import OfSet
from tagmill_wire.sets import Order

# A lease that asks for fewer of a set's expressions brings their definitions: a new tag makes a new
# version, and what waits in the other partitions is that tag alone.
MIN_SHARE = 1 / 8
# Expressions of one base that are named by one bitmap, and not one by one.
MIN_GROUP = 2


def shared(wanted: set[int]) -> ExpressionSet | None:
    """The set that a lease of these expressions names, if it is worth to be fetched for them."""
    live = expression_sets.current()
    count = len(wanted & live.order.positions.keys())
    return live if count and count >= MIN_SHARE * len(live.order.ids) else None


def grouped(items: Sequence[Stale], order: Order) -> tuple[list[OfSet], list[Stale]]:
    """What is named by bitmaps over the set, one for each base; and what is not."""
    bases: dict[int | None, list[int]] = {}
    for item in items:
        if item.expression in order.positions:
            bases.setdefault(item.base_rev, []).append(item.expression)
    found = {base: order.bits(keys) for base, keys in bases.items() if len(keys) >= MIN_GROUP}
    groups = [
        OfSet(base, None if bits == order.everything else order.encode(bits))
        for base, bits in found.items()
    ]
    left = [
        item
        for item in items
        if item.base_rev not in found or item.expression not in order.positions
    ]
    return groups, left
