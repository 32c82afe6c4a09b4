"""The trail: which nodes a tag gained and lost, when, and its end.

For an automatic tag it is what evaluations of its definition changed, for a manual one what was
assigned. A deleted node leaves its tags without a change of its own.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from tagmill import locks, sql
from tagmill.config import load
from tagmill.fleet.models import Partition, PastPartition
from tagmill.matches.models import MatchChange
from tagmill.tags.models import AssignmentChange, Tag
from tagmill_wire import bitmap

# Bounds one answer, however many nodes its changes are about.
MAX_NAMED = 10_000
# Bounds one transaction, and one run of the maintenance; the next goes on.
MAX_DELETED = 20_000
MAX_SECONDS = 30.0
FORGOTTEN = ("delete_changes", "delete_assignment_changes", "delete_past_partitions")

Stored = MatchChange | AssignmentChange


@dataclass(frozen=True)
class Change:
    """`cluster` is None where its partition has been gone for longer than changes are kept. The
    names may be cut; the counts are not."""

    at: datetime
    actor: str
    cluster: str | None
    from_rev: int | None
    to_rev: int | None
    added_count: int
    removed_count: int
    added: list[str]
    removed: list[str]


class _Named(NamedTuple):
    number: int
    names: list[str]


def of(tag: Tag) -> QuerySet[MatchChange] | QuerySet[AssignmentChange]:
    """The rows to page through."""
    expression = tag.expression_id or tag.pending_expression_id
    if expression is None:
        return AssignmentChange.objects.filter(tag=tag.id)
    return MatchChange.objects.filter(expression=expression, is_move=None)


def described(rows: Sequence[Stored]) -> list[Change]:
    """The rows with names, MAX_NAMED in all: fewer rows show more of each. Two queries."""
    most = MAX_NAMED // (2 * max(1, len(rows)))
    bits = [(bitmap.from_bytes(row.added), bitmap.from_bytes(row.removed)) for row in rows]
    names = _named(
        [
            (row.partition_id, islice(bitmap.slots(members), most))
            for row, both in zip(rows, bits, strict=True)
            for members in both
        ]
    )
    clusters = clusters_of({row.partition_id for row in rows})
    return [
        Change(
            row.at,
            getattr(row, "actor", ""),
            clusters.get(row.partition_id),
            getattr(row, "from_rev", None),
            getattr(row, "to_rev", None),
            added.bit_count(),
            removed.bit_count(),
            names[2 * number],
            names[2 * number + 1],
        )
        for number, (row, (added, removed)) in enumerate(zip(rows, bits, strict=True))
    ]


def clusters_of(partitions: Collection[int]) -> dict[int, str]:
    """The names of their clusters, also of partitions that are gone."""
    past = PastPartition.objects.filter(id__in=partitions).values_list("id", "cluster")
    here = Partition.objects.filter(id__in=partitions).values_list("id", "cluster__name")
    return {**dict(past), **dict(here)}


def named(members: Sequence[tuple[int, bytes]]) -> list[list[str]]:
    """The system_ids of the nodes, live or deleted, in each of these (partition, bitmap). One
    query."""
    return _named(
        [(partition, bitmap.slots(bitmap.from_bytes(bits))) for partition, bits in members]
    )


def _named(lists: Sequence[tuple[int, Iterable[int]]]) -> list[list[str]]:
    """The same of lists of slots."""
    asked = [
        (number, partition, f"{{{','.join(map(str, slots))}}}")
        for number, (partition, slots) in enumerate(lists)
    ]
    asked = [each for each in asked if each[2] != "{}"]
    values = {
        "partitions": [partition for _, partition, _ in asked],
        "slots": [slots for _, _, slots in asked],
    }
    found: list[list[str]] = [[] for _ in lists]
    for row in sql.named(_Named, __file__, "named_places", values) if asked else ():
        found[asked[row.number - 1][0]] = row.names
    return found


def forget() -> int:
    """Delete changes that are older than they are kept, as many as the time allows; how many."""
    ends = time.monotonic() + MAX_SECONDS
    values = {"days": load().change_days, "most": MAX_DELETED}
    total = 0
    while True:
        with transaction.atomic():
            locks.housekeeping()
            counts = [sql.run(__file__, name, values) for name in FORGOTTEN]
        total += sum(counts)
        if max(counts) < MAX_DELETED or time.monotonic() >= ends:
            return total
