"""Nodes of sparse partitions move into fuller ones of their cluster.

A slot is never used again, so a fleet whose machines come and go leaves partitions behind that are
full of tombstones. Those with few live nodes are emptied, a few nodes a transaction, and then
deleted (`full_partitions`): a cluster keeps at most one partition in part filled, and others with
more than TAGMILL_COMPACT_BELOW of their slots in use.

A node moves as one that changes its cluster does (`writes`), and takes its verdicts along: they are
read of the matches of its old partition, which is left alone until they are all fresh. So a move
makes no work for workers, and no tag gains or loses a node. The trail has both halves, marked as a
move, so that it still adds up; readers of changes are not shown them.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from django.db import transaction

from tagmill import sql
from tagmill.config import load
from tagmill.fleet.documents import CheckedUpload, Upload
from tagmill.fleet.partitions import ClusterGone, Held, HeldPartitions, reserve
from tagmill.flows import full_partitions, ingest, settling
from tagmill.flows.settling import Evaluated
from tagmill.flows.writes import Stored, Writes
from tagmill.matches import verdicts
from tagmill.matches.verdicts import GROUP, Verdicts
from tagmill.work import policy, queue

# Bounds one transaction, for which uploads into the partition that is filled wait.
MAX_MOVED = 64
# Bounds one run of the maintenance; the next goes on.
MAX_PARTITIONS = 1_000
MAX_SECONDS = 2.0


class _NotNow(Exception):
    """It is not as it was when it was looked at, or not yet: the next run looks again."""


class _Sparse(NamedTuple):
    partition: int
    cluster: int
    nodes: int


class _Fresh(NamedTuple):
    expression: int
    members: bytes


class Figures(NamedTuple):
    """What all partitions have together; `sparse`: those that are to be emptied."""

    partitions: int
    nodes: int
    tombstones: int
    sparse: int


def run() -> int:
    """How many nodes moved."""
    moved = 0
    ends = time.monotonic() + MAX_SECONDS
    if load().compact_below:
        wanted = {"below": load().compact_below, "most": MAX_PARTITIONS}
        for sparse in sql.named(_Sparse, __file__, "sparse_partitions", wanted):
            while time.monotonic() < ends:
                count = _move(sparse)
                moved += count
                if count < MAX_MOVED:
                    break
    full_partitions.delete_empty()
    return moved


def figures() -> Figures:
    (found,) = sql.named(Figures, __file__, "partition_figures", {"below": load().compact_below})
    return found


def _move(sparse: _Sparse) -> int:
    """Move some of its nodes; how many: none while anything there is stale."""
    try:
        with transaction.atomic():
            return _moved(sparse)
    except (_NotNow, ClusterGone, settling.Superseded):
        return 0


def _moved(sparse: _Sparse) -> int:
    rooms = reserve(sparse.cluster, min(MAX_MOVED, sparse.nodes))
    # Pages of nodes are in the order of places: who reads them meanwhile finds a node that moves on
    # twice, and would miss one that moves back. A lower partition is filled by new nodes first.
    if min(rooms) < sparse.partition:
        raise _NotNow
    held = HeldPartitions([sparse.partition, *rooms])
    if sparse.partition not in held or not _is_sparse(held[sparse.partition]):
        raise _NotNow
    source = held[sparse.partition]
    live = verdicts.current()
    at = {"partition": source.id, "rev": source.before}
    fresh = sql.bound(_Fresh, __file__, "fresh_members", at)
    if [item.expression for item in fresh] != list(live.ids):
        raise _NotNow
    wanted = {"partition": source.id, "most": min(MAX_MOVED, sparse.nodes)}
    nodes = sql.bound(Stored.of, __file__, "nodes_of_partition", wanted)
    (after,) = sql.values(__file__, "place_in_trail", {})
    writes = Writes(held)
    for node in nodes:
        target = held.with_room(sparse.cluster)
        if target is None:
            raise _NotNow
        writes.move(node, CheckedUpload(Upload(node.system_id), {}), target)
    places = {node.system_id: (node.slot, node.digests) for node in nodes}
    known = Verdicts(live.ids, _groups(fresh, source.capacity))
    waiting = ingest.finish(held, writes, Evaluated(live, True, known, places))
    sql.run(__file__, "mark_moves", {"after": after})
    queue.defer_partitions(waiting, policy.CHANGE)
    return len(nodes)


def _is_sparse(partition: Held) -> bool:
    most = load().compact_below * partition.capacity
    return not partition.room and 0 < partition.node_count <= most


def _groups(fresh: list[_Fresh], capacity: int) -> list[list[bytes]]:
    """What the members of a partition say of its nodes, which are known by their slots."""
    size = GROUP // 8
    padded = [bytes(item.members).ljust(-(-capacity // GROUP) * size, b"\0") for item in fresh]
    return [
        [members[first : first + size] for members in padded]
        for first in range(0, -(-capacity // GROUP) * size, size)
    ]
