"""The roles of users, up and down."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.db import transaction

from api.roles import GROUPS
from tagmill.errors import Conflict, NotFound


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
