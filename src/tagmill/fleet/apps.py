from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created

from tagmill import sql


class FleetConfig(AppConfig):
    name = "tagmill.fleet"
    label = "fleet"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        connection_created.connect(sql.adapt, dispatch_uid="tagmill.adapt")
