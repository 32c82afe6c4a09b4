"""Who changed what, and when. Written by triggers (migration 0002), whatever made the change.

The tables that are watched are small and change by hand: tags, clusters, worker tokens, users,
their roles and their tokens. What nodes and evaluations change is not here: `match_change` and
`assignment_change` record that in bitmaps.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Event(models.Model):
    """One change of one object. Append only; deleted after TAGMILL_AUDIT_DAYS.

    Nothing is referred to: an event outlives its object, and its actor.
    """

    class Kind(models.TextChoices):
        TAG = "tag"
        CLUSTER = "cluster"
        WORKER_TOKEN = "worker_token"  # noqa: S105 - a kind of object
        USER = "user"
        USER_TOKEN = "user_token"  # noqa: S105 - a kind of object

    class Action(models.TextChoices):
        CREATED = "created"
        CHANGED = "changed"
        DELETED = "deleted"
        ASSIGNED = "assigned"
        PUBLISHED = "published"

    class Via(models.TextChoices):
        API = "api"
        ADMIN = "admin"
        COMMAND = "command"
        WORKER = "worker"
        SYSTEM = "system"

    at = models.DateTimeField(db_default=Now(), editable=False)
    actor = models.CharField(
        max_length=256, db_default="", help_text="a user, a worker token, or a system user's name"
    )
    via = models.CharField(max_length=16, choices=Via, db_default=Via.SYSTEM)
    request_id = models.CharField(max_length=64, db_default="")
    kind = models.CharField(max_length=16, choices=Kind)
    object_id = models.BigIntegerField()
    name = models.CharField(max_length=256, help_text="as it was before the change")
    action = models.CharField(max_length=16, choices=Action)
    changes = models.JSONField(help_text="field to [before, after]; secrets are never in it")

    class Meta:
        db_table = "audit_event"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["kind", "object_id", "id"], name="audit_event_object"),
            models.Index(fields=["at"], name="audit_event_at"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.action}"
