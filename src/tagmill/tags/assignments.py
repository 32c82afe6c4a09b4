"""Manual tags: nodes added and removed by hand, as bitmaps like those of matches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TypedDict

from django.db import transaction

from tagmill import locks
from tagmill.audit import acting, trail
from tagmill.audit.models import Event
from tagmill.errors import AutomaticTag, DatabaseUnavailable, Invalid, NotFound
from tagmill.fleet.models import Node, Partition
from tagmill.fleet.partitions import HeldPartitions
from tagmill.tags.models import Assignment, AssignmentChange, Tag
from tagmill_wire import bitmap

# A node is moved between our look at it and our lock. It takes that many coincidences in a row to
# give up.
ATTEMPTS = 8


class _Moved(Exception):
    """A node is in a partition that is not locked: look again."""


class Assigned(TypedDict):
    """How many nodes were added and removed that were not already, and the ids of no live node."""

    added: int
    removed: int
    unknown: list[str]


def assign(name: str, add: Sequence[str], remove: Sequence[str]) -> Assigned:
    """Raises NotFound, AutomaticTag, and Invalid for a node that is to be added and removed."""
    both = set(add) & set(remove)
    if both:
        raise Invalid(f"{min(both)!r} is both to be added and to be removed", field="remove")
    if not Tag.objects.filter(name=name).exists():
        raise NotFound(f"there is no tag {name!r}")
    wanted = [*add, *remove]
    with transaction.atomic():
        places, partitions = _held(wanted)
        tag = _manual(name)
        added = removed = 0
        for partition in Partition.objects.filter(id__in=partitions).order_by("id"):
            to_add = bitmap.from_slots(_slots(add, places, partition.id))
            to_remove = bitmap.from_slots(_slots(remove, places, partition.id))
            before = _bits(tag, partition.id)
            _write(tag, partition, (before | to_add) & ~to_remove)
            new, gone = to_add & ~before, to_remove & before
            added += new.bit_count()
            removed += gone.bit_count()
            if new or gone:
                _record(tag, partition, new, gone)
        if added or removed:
            counts = {"added": added, "removed": removed}
            trail.record(Event.Kind.TAG, tag.id, tag.name, Event.Action.ASSIGNED, counts)
    unknown = sorted({system_id for system_id in wanted if system_id not in places})
    return {"added": added, "removed": removed, "unknown": unknown}


def hold(places: Sequence[tuple[int, int]]) -> bool:
    """Lock the manual tags of the nodes at these (partition, slot), all at once and in order;
    whether there are any. Call it before `clear` and `move`, with the partitions locked."""
    rows = Assignment.objects.filter(partition_id__in={partition for partition, _ in places})
    slots: dict[int, int] = {}
    for partition_id, slot in places:
        slots[partition_id] = slots.get(partition_id, 0) | 1 << slot
    tags = {row.tag_id for row in rows if bitmap.from_bytes(row.members) & slots[row.partition_id]}
    return bool(tags) and bool(locks.rows(Tag.objects.filter(id__in=tags)))


def hold_all(partitions: Sequence[int]) -> None:
    """Lock the manual tags of whatever node in these partitions, which are to be deleted."""
    rows = Assignment.objects.filter(partition__in=partitions)
    locks.rows(Tag.objects.filter(id__in=set(rows.values_list("tag_id", flat=True))))


def clear(places: Iterable[tuple[int, int]]) -> None:
    """Take the nodes of these (partition, slot) off every manual tag. Relies on `hold`."""
    for partition_id, slot in places:
        for row in _holding(partition_id, slot):
            _write(row.tag, row.partition, bitmap.from_bytes(row.members) & ~(1 << slot))


def move(partition_id: int, slot: int, new_partition_id: int, new_slot: int) -> None:
    """Carry the manual tags of a node over to its new slot. Relies on `hold`; the new partition is
    locked too."""
    for row in _holding(partition_id, slot):
        _write(row.tag, row.partition, bitmap.from_bytes(row.members) & ~(1 << slot))
        partition = Partition.objects.get(id=new_partition_id)
        _write(row.tag, partition, _bits(row.tag, new_partition_id) | 1 << new_slot)


def _manual(name: str) -> Tag:
    """The tag, locked."""
    found = locks.rows(Tag.objects.filter(name=name))
    if not found:
        raise NotFound(f"there is no tag {name!r}")
    (tag,) = found
    if tag.expression_id or tag.pending_expression_id:
        raise AutomaticTag(f"{name!r} has a definition, which alone says what it matches")
    return tag


def _held(system_ids: Sequence[str]) -> tuple[dict[str, tuple[int, int]], list[int]]:
    """The places of these nodes. They do not change, since the partitions are locked."""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(_Moved), transaction.atomic():
            held = HeldPartitions(_places(system_ids)[1])
            places, partitions = _places(system_ids)
            if not all(partition in held for partition in partitions):
                # The savepoint's end gives the locks back: they are only ever taken in order.
                raise _Moved
            return places, partitions
    raise DatabaseUnavailable("too many changes to the same nodes at once: try again")


def _places(system_ids: Sequence[str]) -> tuple[dict[str, tuple[int, int]], list[int]]:
    """{system_id: (partition, slot)} of the live ones, and the partitions."""
    found = Node.objects.filter(
        system_id__in=[item for item in system_ids if "\0" not in item], deleted_at=None
    )
    places = {
        system_id: (partition, slot)
        for system_id, partition, slot in found.values_list("system_id", "partition_id", "slot")
    }
    return places, sorted({partition for partition, _ in places.values()})


def _slots(
    system_ids: Sequence[str], places: dict[str, tuple[int, int]], partition_id: int
) -> list[int]:
    here = (places[item] for item in system_ids if item in places)
    return [slot for partition, slot in here if partition == partition_id]


def _bits(tag: Tag, partition_id: int) -> int:
    row = Assignment.objects.filter(tag=tag, partition_id=partition_id).first()
    return bitmap.from_bytes(row.members) if row else 0


def _write(tag: Tag, partition: Partition, bits: int) -> None:
    members = bitmap.to_bytes(bits, partition.capacity)
    if not Assignment.objects.filter(tag=tag, partition=partition).update(members=members):
        Assignment.objects.create(tag=tag, partition=partition, members=members)


def _record(tag: Tag, partition: Partition, added: int, removed: int) -> None:
    AssignmentChange.objects.create(
        tag=tag,
        partition=partition,
        added=bitmap.to_bytes(added, partition.capacity),
        removed=bitmap.to_bytes(removed, partition.capacity),
        actor=acting.current().name[: acting.MAX_ACTOR],
    )


def _holding(partition_id: int, slot: int) -> list[Assignment]:
    """The rows in which the slot's bit is set."""
    rows = Assignment.objects.filter(partition_id=partition_id).order_by("tag")
    return [
        row
        for row in rows.select_related("tag", "partition")
        if bitmap.from_bytes(row.members) >> slot & 1
    ]
