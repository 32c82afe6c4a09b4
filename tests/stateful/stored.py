"""What the database holds after a step, each table read once for all that must hold of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tagmill.fleet.models import Node, Partition
from tagmill.matches.models import Expression, Match
from tagmill.tags.models import NodeTag, Preview, Tag
from tagmill_wire import bitmap


class StoredMatch(NamedTuple):
    """A match with what it is compared with; `members` is a bitmap."""

    expression_id: int
    partition_id: int
    members: int
    rev: int | None
    kept_rev: int | None
    expression__text: str
    partition__settled_rev: int
    partition__rev: int


class Stored:
    def __init__(self) -> None:
        fields = ("id", "system_id", "partition_id", "slot", "deleted_at")
        self.nodes = list(Node.objects.values_list(*fields, named=True))
        self.live = [node for node in self.nodes if node.deleted_at is None]
        fields = ("id", "next_slot", "node_count")
        self.partitions = list(Partition.objects.values_list(*fields, named=True))
        self.tags = list(Tag.objects.all())
        self.previews = list(Preview.objects.select_related("expression", "compare_to"))
        self.preview_until = dict(Expression.objects.values_list("id", "preview_until"))
        self.tagged = set(NodeTag.objects.values_list("tag_id", "node_id"))
        """(tag, node), as the view shows them."""
        found = map(StoredMatch._make, Match.objects.values_list(*StoredMatch._fields))
        self.rows = [row._replace(members=bitmap.from_bytes(row.members)) for row in found]  # type: ignore[arg-type]
        self.matches: dict[int, dict[int, int]] = {}
        """expression to {partition: bitmap}."""
        for row in self.rows:
            self.matches.setdefault(row.expression_id, {})[row.partition_id] = row.members

    def carriers(self, expression: int | None) -> list[Any]:
        """The nodes that are there and whose bits are set. None: no expression, so no nodes."""
        if expression is None:
            return []
        found = self.matches.get(expression, {})
        return [node for node in self.live if found.get(node.partition_id, 0) >> node.slot & 1]
