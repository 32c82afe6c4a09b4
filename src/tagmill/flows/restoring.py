"""What `manage.py restored` declares: the database went back to an earlier state, and nothing in it
shows that.

Workers that did not notice may have had results accepted that are true of other documents: a new
incarnation, and then everything is evaluated again. Readers keep the members until then, as
"building".
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from tagmill import locks
from tagmill.fleet import incarnation
from tagmill.fleet.models import Partition, Vocabulary
from tagmill.locks import Lock
from tagmill.matches import staleness
from tagmill.work import leases, queue


@dataclass(frozen=True)
class Declared:
    """`matches`: how many are evaluated again, in so many `partitions`."""

    incarnation: UUID
    matches: int
    partitions: int


def declare() -> Declared:
    """Can be repeated when it was interrupted. Not within a transaction: what completions do now is
    seen only when the new incarnation is committed before the first partition is locked."""
    made = incarnation.declare()
    invalidated = 0
    partitions = list(Partition.objects.order_by("id").values_list("id", flat=True))
    for partition in partitions:
        invalidated += _invalidate(partition)
    leases.reap()
    with transaction.atomic():
        locks.fleet()
        queue.defer_partitions(staleness.stale_partitions())
    return Declared(made, invalidated, len(partitions))


def _invalidate(partition: int) -> int:
    """A completion of the old incarnation is through before this lock is had, or refused after."""
    with transaction.atomic():
        locks.rows(Partition.objects.filter(id=partition))
        Vocabulary.objects.filter(partition=partition).delete()
        values = {"partition": partition}
        return len(locks.query(Lock.MATCH, __file__, "invalidate_matches", values))
