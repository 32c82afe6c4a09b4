"""/api/v1/audit and /api/v1/tags/{name}/history: who changed what, and when."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import get_current_timezone, is_naive, make_aware
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest.base import Resource, one
from api.roles import Role
from tagmill.audit import trail
from tagmill.audit.models import Event
from tagmill.errors import Invalid
from tagmill.tags.models import Tag

EXACT = ("actor", "name", "request_id")
CHOICES = {"kind": Event.Kind, "action": Event.Action, "via": Event.Via}
TIMES = {"since": "at__gte", "until": "at__lt"}


class EventOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    actor = serializers.CharField(
        help_text="A user; via worker, a worker token; via command, who ran it. Empty: nobody."
    )
    via = serializers.ChoiceField(Event.Via.choices)
    request_id = serializers.CharField(help_text="`X-Request-Id` of the answer.")
    kind = serializers.ChoiceField(Event.Kind.choices)
    name = serializers.CharField(help_text="As it was before the change.")
    action = serializers.ChoiceField(Event.Action.choices)
    changes = serializers.DictField(
        help_text="[before, after] by field. Of assigned: how many nodes were added and removed."
    )


class History(Resource):
    has_pages = True
    keyset = "-id"
    serializer_class = EventOut
    queryset = Event.objects.all()

    def events(self, found: QuerySet[Event]) -> Response:
        return self.page(found, lambda rows: EventOut(rows, many=True).data)


class HistoryOfTag(History):
    @extend_schema(operation_id="tags_history", responses=EventOut(many=True))
    def get(self, request: Request, name: str) -> Response:
        """The newest first; also under its former names."""
        tag: Tag = one(Tag.objects.all(), "tag", name=name)
        return self.events(trail.of(Event.Kind.TAG, tag.id))


class Audit(History):
    """Every change of tags, clusters, tokens, users and their roles, the newest first."""

    roles = {"GET": Role.ADMIN}
    parameters = frozenset({*EXACT, *CHOICES, *TIMES})

    @extend_schema(
        operation_id="audit_list",
        responses=EventOut(many=True),
        parameters=[
            *(OpenApiParameter(name, str) for name in EXACT),
            *(OpenApiParameter(name, str, enum=kind.values) for name, kind in CHOICES.items()),
            *(OpenApiParameter(name, OpenApiTypes.DATETIME) for name in TIMES),
        ],
    )
    def get(self, request: Request) -> Response:
        given = request.query_params
        found = Event.objects.all()
        for name in EXACT:
            if name in given:
                found = found.filter(**{name: given[name].replace("\0", "")})
        for name, kind in CHOICES.items():
            if name in given:
                if given[name] not in kind.values:
                    raise Invalid(f"{name} must be one of {', '.join(kind.values)}", field=name)
                found = found.filter(**{name: given[name]})
        for name, field in TIMES.items():
            if name in given:
                found = found.filter(**{field: _time(name, given[name])})
        return self.events(found)


def _time(name: str, text: str) -> datetime:
    """Raises Invalid."""
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise Invalid(f"{name} must be a time as 2026-01-31T12:00:00Z", field=name)
    return make_aware(found, get_current_timezone()) if is_naive(found) else found
