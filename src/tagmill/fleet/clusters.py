"""Clusters: made, renamed, and deleted when they are empty."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from tagmill import sql
from tagmill.errors import AlreadyExists, Invalid, NotFound, StillInUse
from tagmill.fleet.models import Cluster
from tagmill.rebuilds import leases

NAME_LENGTH = 256


def create(name: str) -> Cluster:
    """Raises AlreadyExists, Invalid."""
    _check(name)
    try:
        with transaction.atomic():
            return Cluster.objects.create(name=name)
    except IntegrityError:
        raise AlreadyExists(f"there is a cluster {name!r} already", field="name") from None


def rename(cluster: Cluster, name: str) -> None:
    """Raises AlreadyExists, Invalid."""
    _check(name)
    try:
        with transaction.atomic():
            Cluster.objects.filter(pk=cluster.pk).update(name=name)
    except IntegrityError:
        raise AlreadyExists(f"there is a cluster {name!r} already", field="name") from None


def delete(cluster: Cluster) -> None:
    """With its partitions and tombstones; what the audit trail says of them stays.

    Raises StillInUse while a node lives there, NotFound.
    """
    with transaction.atomic():
        # A node that is being stored takes this lock first, or has its partition already.
        if not Cluster.objects.select_for_update().filter(pk=cluster.pk).exists():
            raise NotFound(f"there is no cluster {cluster.name!r}")
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


def _check(name: str) -> None:
    if not name.strip() or not name.isprintable() or len(name) > NAME_LENGTH:
        raise Invalid(
            f"a cluster's name is one line of text, at most {NAME_LENGTH} characters", field="name"
        )
