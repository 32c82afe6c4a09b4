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


def shared(wanted: set[int], live: str | None = None) -> ExpressionSet | None:
    """The set that a lease of these expressions names, if it is worth to be fetched for them.
    `live`: the version of what was live a moment ago, if that is known."""
    found = expression_sets.with_all(wanted, live)
    count = len(wanted & found.order.positions.keys())
    return found if count and count >= MIN_SHARE * len(found.order.ids) else None


def grouped(
    items: Sequence[Stale], order: Order
) -> tuple[list[OfSet], list[tuple[int, int | None]]]:
    """What is named by bitmaps over the set, one for each base; and what is not: expressions, each
    with its base."""
    bases: dict[int | None, int] = {}
    left: list[tuple[int, int | None]] = []
    for item in items:
        bits, others = order.split(item.expressions)
        bases[item.base_rev] = bases.get(item.base_rev, 0) | bits
        left += [(key, item.base_rev) for key in others]
    groups = []
    for base, bits in bases.items():
        if bits.bit_count() >= MIN_GROUP:
            groups.append(OfSet(base, None if bits == order.everything else order.encode(bits)))
        else:
            left += [(key, base) for key in order.expressions(bits)]
    return groups, left
