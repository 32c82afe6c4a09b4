"""Who may do what: roles (api/roles.py) asked for by views, and what they mean in the admin site.

A role is membership in the Django group of its name. The same groups carry the permissions of
Django's admin site, for users who are also `staff`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from api.roles import GROUPS, Role
from tagmill.work.models import WorkerToken

if TYPE_CHECKING:
    # It imports this module: DRF's settings name it.
    from rest_framework.views import APIView

# What each role may do in the admin site, beyond viewing: (model, actions).
ADMIN_SITE = {
    Role.VIEWER: (),
    Role.UPLOADER: (),
    Role.OPERATOR: (("tags.tag", ("add", "change", "delete")),),
    Role.ADMIN: (
        ("tags.tag", ("add", "change", "delete")),
        ("fleet.cluster", ("add", "change", "delete")),
        ("work.workertoken", ("add", "change", "delete")),
        ("api.usertoken", ("delete",)),
        ("api.bodycachereport", ()),
        ("api.bodycachecontrol", ()),
    ),
}
VIEWED = ("tags.tag", "fleet.cluster", "fleet.partition", "fleet.node", "tags.rebuild",
          "work.worker", "work.workertoken")  # fmt: skip


class RolePermission(BasePermission):
    """The view's `roles` name the role for a method; without it, reading takes a viewer and
    everything else an operator. NONE is everybody who is somebody."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needed = getattr(view, "roles", {}).get(request.method)
        if needed is None:
            needed = Role.VIEWER if request.method in SAFE_METHODS else Role.OPERATOR
        self.message = f"this takes the role {needed.label}: an administrator can give it"
        return bool(request.user and request.user.is_authenticated) and may(request.user, needed)


class IsWorker(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, WorkerToken)


def role_of(user: Any) -> Role:
    """The rights of all the user's groups; where a token asks, only those that the token has too.
    Asks the database once for each user object."""
    if user is None or not user.is_authenticated or not user.is_active:
        return Role.NONE
    if not hasattr(user, "_tagmill_role"):
        # By `all`: whoever lists users has fetched their groups.
        names = {group.name for group in user.groups.all()} & GROUPS.keys()
        limit_role(user, names, Role.ADMIN)
    role: Role = user._tagmill_role
    return role


def limit_role(user: Any, groups: Iterable[str], most: Role) -> None:
    """What `role_of` says of this user object from now on: the groups' rights, within `most`."""
    role = Role.ADMIN if user.is_superuser else Role.NONE
    for name in groups:
        role |= GROUPS[name]
    user._tagmill_role = role & most


def may(user: Any, needed: Role) -> bool:
    return needed in role_of(user)


def make_groups(using: str, **_: Any) -> None:
    """After migrations: the groups exist and hold at least these permissions."""
    from django.contrib.auth.models import Group, Permission

    for label in ("api", "fleet", "matches", "work", "tags"):
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
