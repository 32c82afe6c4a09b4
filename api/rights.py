"""What somebody may do, and where: the one place that decides.

A user's role holds everywhere. Beside it, a user may have roles in some clusters (`ClusterRole`),
which add to it and take nothing away. What needs a role is for those who have it everywhere, unless
it asks for the `Scope` in which somebody has it, and keeps to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from api.models import ClusterRole
from api.problems import Forbidden
from api.roles import GROUPS, IN_CLUSTERS, Role
from tagmill.errors import Invalid
from tagmill.fleet.documents import Upload


def role_of(user: Any) -> Role:
    """What the user may do everywhere: the rights of all the user's groups; where a token asks,
    only those that the token has too. Asks the database once for each user object."""
    if user is None or not user.is_authenticated or not user.is_active:
        return Role.NONE
    if not hasattr(user, "_tagmill_role"):
        # By `all`: whoever lists users has fetched their groups.
        names = {group.name for group in user.groups.all()} & GROUPS.keys()
        limit_role(user, names, Role.ADMIN)
    role: Role = user._tagmill_role
    return role


def limit_role(user: Any, groups: Iterable[str], most: Role) -> None:
    """What the user object may do from now on: the groups' rights everywhere, and in clusters
    those that were given there, both within `most`."""
    role = Role.ADMIN if user.is_superuser else Role.NONE
    for name in groups:
        role |= GROUPS[name]
    user._tagmill_role = role & most
    user._tagmill_most = most


def may(user: Any, needed: Role) -> bool:
    """Whether the user has the role everywhere."""
    return needed in role_of(user)


def refusal(needed: Role) -> str:
    return f"this takes the role {needed.label}: an administrator can give it"


class InCluster(NamedTuple):
    """What somebody may do in one cluster, where it is less everywhere."""

    id: int
    uuid: UUID
    name: str
    role: Role


@dataclass(frozen=True)
class Scope:
    """Where somebody has the role: in these clusters, or with None in all, also those that are
    made later."""

    needed: Role
    clusters: Mapping[int, InCluster] | None = None

    @property
    def ids(self) -> list[int] | None:
        """For queries: None is all of them."""
        return None if self.clusters is None else list(self.clusters)

    def has(self, cluster_id: int) -> bool:
        return self.clusters is None or cluster_id in self.clusters

    def guarded(self, upload: Upload) -> Upload:
        """The upload, which is refused where it would change a node elsewhere, or move one there;
        under the locks that the change takes. Raises Forbidden for a cluster elsewhere, whether it
        exists or not."""
        if self.clusters is None:
            return upload
        cluster = None if upload.cluster is None else self._named(upload.cluster)
        expects = upload.expects

        def check(node: Any) -> None:
            if node is not None and not self.has(node.cluster_id):
                raise Forbidden(
                    f"this takes the role {self.needed.label} in the cluster of the node "
                    f"{upload.system_id!r}: an administrator can give it"
                )
            if expects is not None:
                expects(node)
            if node is None and cluster is None:
                raise Invalid("name the `cluster` that it is to be made in", field="cluster")

        return replace(upload, cluster=cluster, expects=check)

    def _named(self, key: str) -> str:
        """The uuid of the cluster: a name may be another's a moment later."""
        for cluster in (self.clusters or {}).values():
            if key == cluster.name or _is_uuid(key, cluster.uuid):
                return str(cluster.uuid)
        raise Forbidden(
            f"this takes the role {self.needed.label} in the cluster {key!r}: an administrator can "
            "give it",
            field="cluster",
        )


def _is_uuid(key: str, uuid: UUID) -> bool:
    try:
        return UUID(key) == uuid
    except ValueError:
        return False


def in_clusters(user: Any) -> list[InCluster]:
    """What was given to the user in clusters, within what the token may; by their names. Asks the
    database once for each user object."""
    if user is None or not user.is_authenticated or not user.is_active:
        return []
    if not hasattr(user, "_tagmill_clusters"):
        role_of(user)
        rows = ClusterRole.objects.filter(user=user.pk, role__in=IN_CLUSTERS)
        user._tagmill_clusters = [
            InCluster(
                row.cluster.id,
                row.cluster.uuid,
                row.cluster.name,
                GROUPS[row.role] & user._tagmill_most,
            )
            for row in rows.select_related("cluster").order_by("cluster__name")
        ]
    found: list[InCluster] = user._tagmill_clusters
    return found


def find(user: Any, needed: Role) -> Scope | None:
    """Where the user has the role; None: nowhere."""
    if may(user, needed):
        return Scope(needed)
    found = {each.id: each for each in in_clusters(user) if needed in each.role}
    return Scope(needed, found) if found else None


def most(user: Any) -> Role:
    """What the user may do anywhere: a token needs no more."""
    found = role_of(user)
    for each in in_clusters(user):
        found |= each.role
    return found
