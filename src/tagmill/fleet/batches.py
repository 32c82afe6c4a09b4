"""What workers read: the documents of a partition, in pages."""

from __future__ import annotations

from typing import Any

from tagmill import sql
from tagmill.errors import NotFound
from tagmill.fleet.models import Partition
from wire.messages import Batch, BatchNode

# Slots start at 0.
BEFORE_THE_FIRST = -1


def revision(partition_id: int) -> int:
    """The partition's rev. Raises NotFound."""
    rev = Partition.objects.filter(id=partition_id).values_list("rev", flat=True).first()
    if rev is None:
        raise NotFound(f"no partition {partition_id}")
    return rev


def read(
    partition_id: int, since: int | None, after: int | None, max_nodes: int, max_bytes: int
) -> Batch:
    """One page (docs/protocol.md), of at least one node where any is left. Raises NotFound.

    Its rev is read first: the page may be newer than it claims, never older. A claim that is too
    low costs an evaluation; one that is too high would hide a change for ever.
    """
    rev = revision(partition_id)
    found = sql.rows(
        __file__,
        "batch",
        {
            "partition": partition_id,
            "since": since,
            "after": BEFORE_THE_FIRST if after is None else after,
            "max_nodes": max_nodes,
            "max_bytes": max_bytes,
        },
    )
    nodes = _nodes(found)
    has_more = bool(found) and found[0][3] > len(nodes)
    return Batch(partition_id, rev, nodes, nodes[-1].slot if has_more else None)


def _nodes(found: list[tuple[Any, ...]]) -> list[BatchNode]:
    nodes: list[BatchNode] = []
    probes: dict[str, str] = {}
    for slot, rev, is_deleted, _, probe, xml in found:
        if not nodes or nodes[-1].slot != slot:
            probes = {}
            nodes.append(BatchNode(slot, rev, None if is_deleted else probes))
        if probe is not None:
            probes[probe] = xml
    return nodes
