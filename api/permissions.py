"""What people may do: three roles, each with all that the one before may. Superusers are admins.

| role | may |
|---|---|
| viewer | read |
| operator | change tags, nodes and assignments, rebuild |
| admin | change clusters, worker tokens and users' tokens |

A role is membership in the Django group of its name. The same groups carry the permissions of
Django's admin site, for users who are also `staff`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from tagmill.rebuilds.models import WorkerToken

if TYPE_CHECKING:
    # It imports this module: DRF's settings name it.
    from rest_framework.views import APIView


class Role(enum.IntEnum):
    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


GROUPS = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN}
# What each role may do in the admin site, beyond viewing: (model, actions).
ADMIN_SITE = {
    Role.VIEWER: (),
    Role.OPERATOR: (("tags.tag", ("add", "change", "delete")),),
    Role.ADMIN: (
        ("tags.tag", ("add", "change", "delete")),
        ("fleet.cluster", ("add", "change", "delete")),
        ("rebuilds.workertoken", ("add", "change", "delete")),
        ("knox.authtoken", ("add", "delete")),
    ),
}
VIEWED = ("tags.tag", "fleet.cluster", "fleet.partition", "fleet.node", "rebuilds.rebuild",
          "rebuilds.worker", "rebuilds.workertoken")  # fmt: skip


class RolePermission(BasePermission):
    """The view's `roles` name the role for a method; without it, reading takes a viewer and
    everything else an operator."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needed = getattr(view, "roles", {}).get(request.method)
        if needed is None:
            needed = Role.VIEWER if request.method in SAFE_METHODS else Role.OPERATOR
        self.message = f"this takes the role {needed.name.lower()}: an administrator can give it"
        return role_of(request.user) >= needed


class IsWorker(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, WorkerToken)


def role_of(user: Any) -> Role:
    """The highest role. Asks the database once for each user object."""
    if user is None or not user.is_authenticated or not user.is_active:
        return Role.NONE
    if user.is_superuser:
        return Role.ADMIN
    if not hasattr(user, "_tagmill_role"):
        names = user.groups.filter(name__in=GROUPS).values_list("name", flat=True)
        user._tagmill_role = max((GROUPS[name] for name in names), default=Role.NONE)
    role: Role = user._tagmill_role
    return role


def is_viewer(user: Any) -> bool:
    return role_of(user) >= Role.VIEWER


def is_operator(user: Any) -> bool:
    return role_of(user) >= Role.OPERATOR


def is_admin(user: Any) -> bool:
    return role_of(user) >= Role.ADMIN


def make_groups(using: str, **_: Any) -> None:
    """After migrations: the groups exist and hold at least these permissions."""
    from django.contrib.auth.models import Group, Permission

    for label in ("knox", "fleet", "tags", "rebuilds"):
        create_permissions(apps.get_app_config(label), verbosity=0, using=using)
    known = {
        f"{app}.{codename}": pk
        for pk, app, codename in Permission.objects.using(using).values_list(
            "pk", "content_type__app_label", "codename"
        )
    }
    for name, role in GROUPS.items():
        group, _created = Group.objects.using(using).get_or_create(name=name)
        wanted = {_codename(model, "view") for model in VIEWED}
        for model, actions in ADMIN_SITE[role]:
            wanted |= {_codename(model, action) for action in ("view", *actions)}
        group.permissions.add(*(known[codename] for codename in wanted))


def _codename(model: str, action: str) -> str:
    app, _, name = model.partition(".")
    return f"{app}.{action}_{name}"
