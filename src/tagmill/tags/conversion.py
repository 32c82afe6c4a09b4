"""Manual tags that become automatic, and automatic ones that become manual. Both are asked for.

manual ──definition──► automatic   what was assigned is shown until the definition is published, and
                                   is then given up
automatic ───────────► manual      the nodes that it shows now are assigned to it
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tagmill import sql
from tagmill.audit import acting
from tagmill.errors import KindChange
from tagmill.fleet.models import Partition
from tagmill.fleet.partitions import HeldPartitions
from tagmill.tags import rebuilds
from tagmill.tags.models import Assignment, AssignmentChange, Tag
from tagmill_wire import bitmap

Kind = Literal["manual", "automatic"]


def hold_fleet() -> None:
    """Lock all partitions, before the tag: nodes and matches stay as they are until the end of the
    transaction. Nodes are stored in a new partition meanwhile, but none of the tag's."""
    HeldPartitions(Partition.objects.values_list("id", flat=True))


def is_automatic(tag: Tag) -> bool:
    return tag.expression_id is not None or tag.pending_expression_id is not None


def check_automatic(tag: Tag, kind: Kind | None) -> None:
    """Raises KindChange where a definition would take the place of nodes that somebody assigned,
    and nobody asked for that. The tag is locked."""
    if is_automatic(tag) or kind == "automatic":
        return
    for row in tag.assignments.all():
        if bitmap.from_bytes(row.members):
            raise KindChange(
                f"{tag.name!r} has nodes that were assigned by hand, which a definition replaces: "
                'send "kind": "automatic" as well if that is meant',
                field="kind",
            )


def make_manual(tag: Tag) -> None:
    """Assign the nodes that it shows now. Its rebuilds end. Relies on: the tag is locked, and
    `hold_fleet` was called before."""
    if tag.expression_id is not None:
        Assignment.objects.filter(tag=tag).delete()
        _assign_present(tag, tag.expression_id)
    rebuilds.supersede(tag.id)
    Tag.objects.filter(id=tag.id).update(expression=None, pending_expression=None)
    rebuilds.finish_reached()


class _Present(NamedTuple):
    partition: int
    capacity: int
    members: bytes
    deleted: list[int]


def _assign_present(tag: Tag, expression: int) -> None:
    rows = sql.named(_Present, __file__, "present_members", {"expression": expression})
    members = {
        row.partition: bitmap.to_bytes(
            bitmap.from_bytes(row.members) & ~bitmap.from_slots(row.deleted), row.capacity
        )
        for row in rows
    }
    present = {partition: bits for partition, bits in members.items() if any(bits)}
    Assignment.objects.bulk_create(
        Assignment(tag=tag, partition_id=partition, members=bits)
        for partition, bits in present.items()
    )
    actor = acting.current().name[: acting.MAX_ACTOR]
    AssignmentChange.objects.bulk_create(
        AssignmentChange(
            tag=tag, partition_id=partition, added=bits, removed=bytes(len(bits)), actor=actor
        )
        for partition, bits in present.items()
    )
