from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class AuditConfig(AppConfig):
    name = "tagmill.audit"
    label = "audit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tagmill.audit import acting

        connection_created.connect(acting.watch, dispatch_uid="tagmill.audit")
