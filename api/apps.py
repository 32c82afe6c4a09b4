from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.contrib.admin import apps
from django.db.models.signals import post_migrate


class AdminConfig(apps.AdminConfig):
    default_site = "api.login.Site"
    # The app of this module is the other one.
    default = False


class ApiConfig(AppConfig):
    name = "api"
    label = "api"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The last of the apps whose permissions the groups hold.
        post_migrate.connect(_make_groups, dispatch_uid="tagmill.groups")


def _make_groups(sender: AppConfig, using: str, **_: Any) -> None:
    if sender.label == "tags":
        from api.permissions import make_groups

        make_groups(using)
