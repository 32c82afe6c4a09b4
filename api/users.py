"""The roles of users, up and down, everywhere and in single clusters."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import transaction

from api.models import ClusterRole
from api.roles import GROUPS, IN_CLUSTERS
from tagmill import locks
from tagmill.errors import Conflict, Invalid, NotFound
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster


def create(username: str, password: str, role: str) -> User:
    """A user with the password and the role who may log in at the web page, too; one who is there
    gets both. Raises Invalid, and Conflict as `set_role` does."""
    try:
        User.username_validator(username)
    except ValidationError as error:
        raise Invalid(error.messages[0], field="user") from None
    with transaction.atomic():
        user, _ = User.objects.select_for_update().get_or_create(username=username)
        user.set_password(password)
        user.is_staff = user.is_active = True
        user.save(update_fields=["password", "is_staff", "is_active"])
        return set_role(username, role)


def set_role(username: str, role: str | None) -> User:
    """The user has this role, or none, and no other. All tokens and sessions of the user follow
    with their next request. Raises NotFound, and Conflict for a superuser, who is an admin whatever
    the groups say."""
    with transaction.atomic():
        user = User.objects.select_for_update().filter(username=username).first()
        if user is None:
            raise NotFound(f"there is no user {username!r}")
        if user.is_superuser and role != "admin":
            raise Conflict(
                f"{username!r} is a superuser, which is more than any role: take that away first, "
                "at /admin/auth/user/"
            )
        wanted = Group.objects.filter(name=role) if role else Group.objects.none()
        user.groups.remove(*Group.objects.filter(name__in=GROUPS.keys() - {role}))
        user.groups.add(*wanted)
        return User.objects.get(pk=user.pk)


def set_cluster_roles(username: str, roles: Mapping[str, str | None]) -> User:
    """In each of these clusters, by name or uuid, the user has this role beside the one that holds
    everywhere, or none. Other clusters are left as they are. Raises NotFound, Invalid."""
    for key, role in roles.items():
        if role is not None and role not in IN_CLUSTERS:
            raise Invalid(
                f"a role in a cluster is one of {', '.join(IN_CLUSTERS)}: {role!r} in {key!r} is "
                "none, and an admin is one everywhere",
                field="clusters",
            )
    with transaction.atomic():
        user = User.objects.select_for_update().filter(username=username).first()
        if user is None:
            raise NotFound(f"there is no user {username!r}")
        found = clusters.all_named(list(roles))
        # One that is being deleted goes with its roles.
        there = {row.pk for row in locks.rows(Cluster.objects.filter(pk__in=[c.pk for c in found]))}
        for (key, role), cluster in zip(roles.items(), found, strict=True):
            if cluster.pk not in there:
                raise clusters.missing(key)
            if role is None:
                ClusterRole.objects.filter(user=user, cluster=cluster).delete()
            else:
                ClusterRole.objects.update_or_create({"role": role}, user=user, cluster=cluster)
        return User.objects.get(pk=user.pk)
