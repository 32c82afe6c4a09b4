"""The audit: events that no trigger sees, what is read of it, and its end."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from tagmill.audit import acting
from tagmill.audit.models import Event
from tagmill.config import load

# Bounds one transaction, and one run of the maintenance; the next goes on.
MAX_DELETED = 10_000
MAX_SECONDS = 30.0


def record(
    kind: Event.Kind, object_id: int, name: str, action: Event.Action, changes: dict[str, Any]
) -> None:
    """Call it in the transaction that makes the change."""
    actor = acting.current()
    Event.objects.create(
        actor=actor.name[: acting.MAX_ACTOR],
        via=actor.via,
        request_id=actor.request_id,
        kind=kind,
        object_id=object_id,
        name=name,
        action=action,
        changes=changes,
    )


def of(kind: Event.Kind, object_id: int) -> QuerySet[Event]:
    """What happened to one object, also under another name."""
    return Event.objects.filter(kind=kind, object_id=object_id)


def forget() -> int:
    """Delete events that are older than they are kept, as many as the time allows; how many."""
    ends = time.monotonic() + MAX_SECONDS
    old = Event.objects.filter(at__lt=Now() - timedelta(days=load().audit_days))
    total = 0
    while True:
        wanted = list(old.order_by("at").values_list("id", flat=True)[:MAX_DELETED])
        total += Event.objects.filter(id__in=wanted).delete()[0]
        if len(wanted) < MAX_DELETED or time.monotonic() >= ends:
            return total
