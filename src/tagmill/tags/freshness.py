"""How far each tag is: its state, its count, and what is left to evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from tagmill import sql
from tagmill.fleet.models import Partition
from tagmill.tags.models import Expression, Tag


@dataclass(frozen=True)
class TagStatus:
    """`node_count`: live nodes of the published set; before a manual tag's first definition is
    published, those assigned by hand. `pending`: partitions that are stale for the expression that
    is to be published, or else the published one. `failure`: empty, or why."""

    state: Literal["ready", "building", "failed"]
    node_count: int
    partitions: int
    pending: int
    evaluated_at: datetime | None
    failure: str


class _Status(NamedTuple):
    partitions: int = 0
    stale: int = 0
    evaluated_at: datetime | None = None
    nodes: int = 0


def status(tags: Sequence[Tag]) -> dict[int, TagStatus]:
    """{tag id: its status}, in a number of queries that does not depend on how many tags."""
    wanted = {
        expression
        for tag in tags
        for expression in (tag.expression_id, tag.pending_expression_id)
        if expression is not None
    }
    found = sql.rows(__file__, "status", {"expressions": sorted(wanted)})
    by_expression = {row[0]: _Status(row[1], row[2], row[3], int(row[4])) for row in found}
    failures = dict(
        Expression.objects.filter(id__in=wanted, failed_at__isnull=False).values_list(
            "id", "failure"
        )
    )
    manual = [tag.id for tag in tags if not (tag.expression_id or tag.pending_expression_id)]
    assigned = dict(sql.rows(__file__, "assigned_counts", {"tags": [tag.id for tag in tags]}))
    partitions = Partition.objects.count() if tags else 0
    return {
        tag.id: TagStatus("ready", int(assigned.get(tag.id, 0)), partitions, 0, None, "")
        if tag.id in manual
        else _of_automatic(tag, by_expression, failures, int(assigned.get(tag.id, 0)))
        for tag in tags
    }


def _of_automatic(
    tag: Tag, found: dict[int, _Status], failures: dict[int, str], assigned: int
) -> TagStatus:
    published = found.get(tag.expression_id or 0, _Status())
    target_id = tag.pending_expression_id or tag.expression_id or 0
    target = found.get(target_id, _Status(published.partitions))
    failure = failures.get(target_id, "")
    node_count = assigned if tag.expression_id is None else published.nodes
    state: Literal["ready", "building", "failed"] = "ready"
    if failure:
        state = "failed"
    elif tag.pending_expression_id or target.stale:
        state = "building"
    return TagStatus(
        state,
        node_count,
        target.partitions,
        target.stale,
        published.evaluated_at or target.evaluated_at,
        failure,
    )
