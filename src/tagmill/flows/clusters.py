"""Clusters are deleted when they are empty, with all that waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import transaction

from tagmill import locks, sql
from tagmill.errors import NotFound, StillInUse
from tagmill.fleet.models import Cluster
from tagmill.tags import assignments, rebuilds
from tagmill.work import leases, queue


def delete(cluster: Cluster, expects: Callable[[Cluster], None] | None = None) -> None:
    """Delete the cluster with its partitions and tombstones; the audit trail of them stays.
    `expects` is called as for `rename`.

    Raises StillInUse while a node lives there, NotFound.
    """
    with transaction.atomic():
        locks.fleet(alone=True)
        # A node that is being stored takes this lock first, or has its partition already.
        found = locks.rows(Cluster.objects.filter(pk=cluster.pk), to_delete=True)
        if not found:
            raise NotFound(f"there is no cluster {cluster.name!r}")
        (now,) = found
        if expects is not None:
            expects(now)
        locked = locks.rows(cluster.partitions.all(), to_delete=True)
        partitions = [partition.id for partition in locked]
        live = sum(partition.node_count for partition in locked)
        if live:
            raise StillInUse(
                f"{cluster.name!r} has {live} nodes: delete them or move them to another cluster"
            )
        delete_partitions(partitions)
        Cluster.objects.filter(pk=cluster.pk).delete()
        # Tags may have waited for its partitions alone.
        rebuilds.look_again()


def delete_partitions(partitions: Sequence[int]) -> None:
    """Delete partitions with everything that refers to them but the audit trail. Relies on: they
    are locked, have no live node, and the fleet is held alone."""
    leases.end_in(partitions)
    assignments.hold_all(partitions)
    queue.cancel_in(partitions)
    sql.run(__file__, "delete_partitions", {"partitions": list(partitions)})
