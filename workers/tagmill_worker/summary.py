"""What of a result goes as bitmaps over an expression set, and not expression by expression."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from tagmill_wire import bitmap
from tagmill_wire.messages import LeasedPartition, OfSet, SlotVerdicts
from tagmill_wire.sets import Order

# What a slot takes as JSON beside its bitmap, and an expression beside its two.
SLOT_BYTES, MATCH_BYTES = 26, 64


class Evaluated(Protocol):
    """A job whose pages are all answered."""

    @property
    def lease(self) -> LeasedPartition: ...
    @property
    def deltas(self) -> Mapping[int, int]: ...
    @property
    def members(self) -> Mapping[int, int]: ...


class Summary(NamedTuple):
    """`expressions`: those that need nothing beside it. The rest as in a PartitionResult."""

    expressions: Collection[int]
    deltas: list[OfSet]
    changed: list[SlotVerdicts]
    empty: str


NOTHING = Summary((), [], [], "")


def of(job: Evaluated, order: Order, answered: Sequence[int], changed: int) -> Summary:
    """Deltas by slot, where that is shorter, and what was evaluated everywhere and holds nowhere.
    `changed`: the slots of the deltas."""
    ours = [key for key in answered if key in order.positions]
    deltas = [key for key in ours if key in job.deltas]
    slots = list(bitmap.slots(changed))
    by_slot = len(slots) * (len(order.ids) // 6 + SLOT_BYTES)
    by_expression = len(deltas) * (job.lease.capacity // 3 + MATCH_BYTES)
    if by_slot > by_expression:
        deltas = []
    empty = [key for key in ours if key not in job.deltas and not job.members.get(key)]
    return Summary(
        {*deltas, *empty},
        _grouped(job, order, deltas),
        _by_slot(job, order, deltas, slots) if deltas else [],
        order.encode(order.bits(empty)) if empty else "",
    )


def _grouped(job: Evaluated, order: Order, deltas: Sequence[int]) -> list[OfSet]:
    bases: dict[int, list[int]] = {}
    for key in deltas:
        bases.setdefault(job.deltas[key], []).append(key)
    found = {base: order.bits(keys) for base, keys in bases.items()}
    return [
        OfSet(base, None if bits == order.everything else order.encode(bits))
        for base, bits in found.items()
    ]


def _by_slot(
    job: Evaluated, order: Order, deltas: Sequence[int], slots: Sequence[int]
) -> list[SlotVerdicts]:
    holds = dict.fromkeys(slots, 0)
    changed = bitmap.from_slots(slots)
    for key in deltas:
        for slot in bitmap.slots(job.members.get(key, 0) & changed):
            holds[slot] |= 1 << order.positions[key]
    return [SlotVerdicts(slot, order.encode(bits)) for slot, bits in holds.items()]
