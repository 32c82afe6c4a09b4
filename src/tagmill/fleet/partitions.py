"""Partitions while a transaction holds their locks: slots handed out, revs raised."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Max

from tagmill import locks, sql
from tagmill.config import load
from tagmill.fleet.models import Cluster, Partition
from tagmill.locks import Lock


class ClusterGone(Exception):
    """The cluster was deleted after it was looked up: look again."""


class Held:
    """One locked partition. Nothing is written before `write`."""

    def __init__(self, *row: int) -> None:
        """`row` is a row of the query `lock_partitions`."""
        self.id, self.before, self.capacity, *columns = row
        self.next_slot, self.node_count, self.cluster_id, self.settled_rev = columns
        self.rev = self.before + 1
        """What the nodes changed by this transaction are stamped with."""
        self.room = self.capacity - self.next_slot
        self.is_changed = False

    def give_slot(self) -> int:
        slot = self.next_slot
        self.next_slot += 1
        self.room -= 1
        self.node_count += 1
        self.is_changed = True
        return slot

    def remove_node(self) -> None:
        self.node_count -= 1
        self.is_changed = True


class HeldPartitions:
    """The partitions that a transaction has locked, all at once and in order."""

    def __init__(self, ids: Iterable[int]) -> None:
        wanted = {"partitions": sorted(set(ids))}
        found = locks.bound(Lock.PARTITION, Held, __file__, "lock_partitions", wanted)
        self._by_id = {held.id: held for held in found}

    def __contains__(self, partition_id: int) -> bool:
        return partition_id in self._by_id

    def __getitem__(self, partition_id: int) -> Held:
        return self._by_id[partition_id]

    def with_room(self, cluster_id: int) -> Held | None:
        """The first partition with room: partitions are filled one after the other."""
        able = [
            held for held in self._by_id.values() if held.cluster_id == cluster_id and held.room
        ]
        return min(able, key=lambda held: held.id, default=None)

    def write(self) -> None:
        """Raise the rev of each partition that changed, once, and store what became settled."""
        changed = [held for held in self._by_id.values() if held.is_changed]
        if changed:
            sql.run_binary(
                __file__,
                "raise_partitions",
                {
                    "ids": [held.id for held in changed],
                    "revs": [held.rev for held in changed],
                    "next_slots": [held.next_slot for held in changed],
                    "node_counts": [held.node_count for held in changed],
                    "settled_revs": [held.settled_rev for held in changed],
                },
            )


def reserve(cluster_id: int, wanted: int) -> list[int]:
    """Partitions of the cluster with room for `wanted` nodes, made where they are missing.

    Locks the cluster, so that two transactions do not make the same partition; call it before any
    partition is locked. Slots are not taken yet: whoever locks the partitions first gets them.
    Raises ClusterGone.
    """
    if not locks.rows(Cluster.objects.filter(id=cluster_id)):
        raise ClusterGone
    chosen = []
    for partition_id, room in sql.rows(__file__, "partitions_with_room", {"cluster": cluster_id}):
        if wanted <= 0:
            break
        chosen.append(partition_id)
        wanted -= room
    capacity = load().partition_slots
    # Not how many there are: some may have been dropped.
    last = Partition.objects.filter(cluster_id=cluster_id).aggregate(number=Max("number"))
    number = last["number"] or 0
    while wanted > 0:
        number += 1
        made = Partition.objects.create(
            cluster_id=cluster_id,
            number=number,
            capacity=capacity,
            rev=0,
            next_slot=0,
            node_count=0,
        )
        chosen.append(made.id)
        wanted -= capacity
    return chosen
