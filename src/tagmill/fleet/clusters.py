"""Clusters: made, renamed, and deleted when they are empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from tagmill import locks, sql
from tagmill.errors import AlreadyExists, Invalid, NotFound, StillInUse
from tagmill.fleet.models import Cluster
from tagmill.rebuilds import leases
from tagmill.tags import assign

NAME_LENGTH = 256


def named(key: str, among: QuerySet[Cluster] | None = None) -> Cluster:
    """By uuid, or else by name: the one place that decides which cluster a key means. `among` are
    the clusters to look in. Raises NotFound."""
    rows = Cluster.objects.all() if among is None else among
    uuid = _uuid(key)
    found = None if uuid is None else rows.filter(uuid=uuid).first()
    if found is None and "\0" not in key:
        found = rows.filter(name=key).first()
    if found is None:
        raise NotFound(
            f"there is no cluster {key!r}: create it first (POST /api/v1/clusters/)",
            field="cluster",
        )
    return found


def create(name: str) -> Cluster:
    """Raises AlreadyExists, Invalid."""
    check_name(name)
    try:
        with transaction.atomic():
            return Cluster.objects.create(name=name)
    except IntegrityError:
        raise AlreadyExists(f"there is a cluster {name!r} already", field="name") from None


def rename(cluster: Cluster, name: str, expects: Callable[[Cluster], None] | None = None) -> None:
    """`expects` sees the cluster under its lock, and raises where it is not the one that was meant.
    Raises AlreadyExists, Invalid, NotFound."""
    check_name(name)
    try:
        with transaction.atomic():
            # Who has the name, too: two clusters that swap their names do not wait for each other.
            both = locks.rows(
                Cluster.objects.filter(Q(pk=cluster.pk) | Q(name=name)), to_delete=True
            )
            now = next((row for row in both if row.pk == cluster.pk), None)
            if now is None:
                raise NotFound(f"there is no cluster {cluster.name!r}")
            if expects is not None:
                expects(now)
            Cluster.objects.filter(pk=cluster.pk).update(name=name)
    except IntegrityError:
        raise AlreadyExists(f"there is a cluster {name!r} already", field="name") from None


def delete(cluster: Cluster, expects: Callable[[Cluster], None] | None = None) -> None:
    """With its partitions and tombstones; what the audit trail says of them stays. `expects` as for
    `rename`.

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


def delete_partitions(partitions: Sequence[int]) -> None:
    """With everything that refers to them but the audit trail. Relies on: they are locked, have no
    live node, and the fleet is held alone."""
    leases.end_in(partitions)
    assign.hold_all(partitions)
    leases.cancel_in(partitions)
    sql.run(__file__, "delete_partitions", {"partitions": list(partitions)})


def check_name(name: str) -> None:
    """Raises Invalid. A name that reads as a uuid could be taken for another cluster, and one of
    dots vanishes from an address."""
    if not name.strip() or not name.isprintable() or len(name) > NAME_LENGTH:
        raise Invalid(
            f"a cluster's name is one line of text, at most {NAME_LENGTH} characters", field="name"
        )
    if _uuid(name) is not None:
        raise Invalid(
            "a cluster's name must not be a uuid: clusters have one already", field="name"
        )
    if name in {".", ".."}:
        raise Invalid(
            "a cluster's name must not be a dot or two: addresses drop them", field="name"
        )


def _uuid(key: str) -> UUID | None:
    try:
        return UUID(key)
    except ValueError:
        return None
