"""Clusters are deleted when they are empty, with all that waits for them."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from tagmill import sql
from tagmill.errors import NotFound, StillInUse
from tagmill.fleet.models import Cluster
from tagmill.work import leases


def delete(cluster: Cluster, expects: Callable[[Cluster], None] | None = None) -> None:
    """With its partitions and tombstones; what the audit trail says of them stays. `expects` as for
    `rename`.

    Raises StillInUse while a node lives there, NotFound.
    """
    with transaction.atomic():
        # A node that is being stored takes this lock first, or has its partition already.
        now = Cluster.objects.select_for_update().filter(pk=cluster.pk).first()
        if now is None:
            raise NotFound(f"there is no cluster {cluster.name!r}")
        if expects is not None:
            expects(now)
        # The strongest lock: also whoever captures the targets of a rebuild waits for it.
        locked = list(cluster.partitions.order_by("id").select_for_update())
        partitions = [partition.id for partition in locked]
        live = sum(partition.node_count for partition in locked)
        if live:
            raise StillInUse(
                f"{cluster.name!r} has {live} nodes: delete them or move them to another cluster"
            )
        leases.forget_partitions(partitions)
        sql.run(__file__, "delete_partitions", {"partitions": partitions})
        Cluster.objects.filter(pk=cluster.pk).delete()
