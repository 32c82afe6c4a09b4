"""Publishing: a tag keeps its published expression until the pending one is evaluated everywhere,
then flips in one transaction. Readers see the old set or the new one, never a mixture."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from tagmill import locks, sql
from tagmill.tags.models import Assignment, Tag


def publish(expressions: Sequence[int] | None = None) -> list[int]:
    """Flip the tags whose pending expression (one of these; None: any) is complete; their ids.

    Call it when the last results are committed.
    """
    return publish_locked([tag.id for tag in locks.rows(_waiting(expressions))])


def is_any_complete(expressions: Sequence[int] | None = None) -> bool:
    """Whether there is anything to publish. Locks nothing."""
    tags = list(_waiting(expressions).values_list("id", flat=True))
    return bool(tags and sql.values(__file__, "complete_tags", {"tags": tags, "without": []}))


def _waiting(expressions: Sequence[int] | None) -> QuerySet[Tag]:
    waiting = Tag.objects.filter(pending_expression__isnull=False)
    return waiting if expressions is None else waiting.filter(pending_expression__in=expressions)


def publish_locked(tags: Sequence[int], without: Sequence[int] = ()) -> list[int]:
    """Flip those of these tags that are complete; their ids. `without`: clusters that need not be.

    The caller has locked the tags."""
    if not tags:
        return []
    values = {"tags": list(tags), "without": list(without)}
    complete: list[int] = sql.values(__file__, "complete_tags", values)
    if complete:
        # A manual tag that became automatic was assigned by hand until now.
        Assignment.objects.filter(tag__in=complete).delete()
        sql.run(__file__, "flip_tags", {"tags": complete})
    return complete
