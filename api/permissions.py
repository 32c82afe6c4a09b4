"""Rights (api/rights.py) asked for by views, and what roles mean in the admin site.

A role is membership in the Django group of its name. The same groups carry the permissions of
Django's admin site, for users who are also `staff`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from api import rights
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


def needed_by(view: Any, method: str | None) -> Role:
    """The view's `roles` name the role for a method; without it, reading takes a viewer and
    everything else an operator. NONE is everybody who is somebody."""
    # HEAD says how long the answer to GET is, and whether there is one.
    needed: Role | None = getattr(view, "roles", {}).get("GET" if method == "HEAD" else method)
    if needed is None:
        return Role.VIEWER if method in SAFE_METHODS else Role.OPERATOR
    return needed


class RolePermission(BasePermission):
    """The role that a method takes. Where the view is `by_cluster`, the role in some clusters is
    enough: the view keeps to what is `granted`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needed = needed_by(view, request.method)
        self.message = rights.refusal(needed)
        if not (request.user and request.user.is_authenticated):
            return False
        if getattr(view, "by_cluster", False):
            return rights.find(request.user, needed) is not None
        return rights.may(request.user, needed)


class IsWorker(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, WorkerToken)


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
