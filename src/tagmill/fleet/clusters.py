"""Clusters: found, made and renamed. `tagmill.flows.clusters` deletes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from tagmill import locks
from tagmill.errors import AlreadyExists, Invalid, NotFound
from tagmill.fleet.models import Cluster

NAME_LENGTH = 256


def named(key: str, among: QuerySet[Cluster] | None = None) -> Cluster:
    """The cluster with this uuid, or else with this name: the one place that decides which cluster
    a key means. `among` are the clusters to look in. Raises NotFound."""
    rows = Cluster.objects.all() if among is None else among
    uuid = _uuid(key)
    found = None if uuid is None else rows.filter(uuid=uuid).first()
    if found is None and "\0" not in key:
        found = rows.filter(name=key).first()
    if found is None:
        raise missing(key)
    return found


def all_named(keys: Sequence[str]) -> list[Cluster]:
    """As `named`, of each key in its order, by one query."""
    uuids = {key: uuid for key in keys if (uuid := _uuid(key)) is not None}
    names = [key for key in keys if "\0" not in key]
    rows = Cluster.objects.filter(Q(uuid__in=uuids.values()) | Q(name__in=names))
    found: dict[str | UUID, Cluster] = {}
    for cluster in rows:
        found |= {cluster.uuid: cluster, cluster.name: cluster}

    def one(key: str) -> Cluster:
        cluster = found.get(uuids[key]) if key in uuids else None
        cluster = cluster or found.get(key)
        if cluster is None:
            raise missing(key)
        return cluster

    return [one(key) for key in keys]


def missing(key: str) -> NotFound:
    return NotFound(
        f"there is no cluster {key!r}: create it first (POST /api/v1/clusters/)",
        field="cluster",
    )


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
