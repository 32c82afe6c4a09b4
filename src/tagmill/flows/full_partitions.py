"""Deletes partitions that are full and have no live node: they hold nothing and get nothing.

Slots are never used again, so a fleet that changes leaves such partitions behind, and each costs a
match for every expression.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from tagmill import locks
from tagmill.fleet.models import Partition
from tagmill.flows.clusters import delete_partitions

# Bounds one transaction; the next run of the maintenance goes on.
MAX_DELETED = 100


def delete_empty() -> int:
    """Delete the partitions that are full and have no live node, with their tombstones and matches;
    how many. Those that are evaluated at this moment are left for the next time."""
    full = Partition.objects.filter(node_count=0, next_slot=F("capacity"), lease=None)
    # Everybody who refers to partitions would wait for the lock.
    if not full.exists():
        return 0
    with transaction.atomic():
        locks.fleet(alone=True)
        # Nothing makes a node in a full one.
        wanted = list(full.order_by("id").values_list("id", flat=True)[:MAX_DELETED])
        rows = Partition.objects.filter(id__in=wanted, node_count=0)
        locked = [row.id for row in locks.rows(rows, to_delete=True, skip_locked=True)]
        if locked:
            delete_partitions(locked)
    return len(locked)
