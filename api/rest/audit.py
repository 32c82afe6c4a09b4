"""/api/v1/audit and /api/v1/tags/{name}/history: who changed what, and when."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest import filters
from api.rest.base import Resource, one
from api.rest.filters import Filter
from api.roles import Role
from tagmill.audit import trail
from tagmill.audit.models import Event
from tagmill.tags.models import Tag

ORDERS = {"-at": "-id", "at": "id"}
OF_ONE = (
    filters.text("actor", "actor", "Who did it."),
    filters.choice("action", Event.Action.values, "action", "What was done."),
    filters.choice("via", Event.Via.values, "via", "By which way."),
    filters.text("request_id", "request_id", "`X-Request-Id` of the answer."),
    *filters.times("at"),
)
OF_ALL = (
    *OF_ONE,
    filters.text("name", "name", "The name of what was changed, as it was before."),
    filters.choice("kind", Event.Kind.values, "kind", "The kind of what was changed."),
)


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


FIELDS = tuple(EventOut().fields)


class History(Resource):
    has_pages = True
    keyset = "-id"
    orders = ORDERS
    filters: ClassVar[tuple[Filter, ...]] = OF_ONE
    serializer_class = EventOut
    queryset = Event.objects.all()

    def events(self, found: QuerySet[Event]) -> Response:
        return self.page(found.values("id", *FIELDS), bodies)


class HistoryOfTag(History):
    @extend_schema(operation_id="tags_history", responses=EventOut(many=True))
    def get(self, request: Request, name: str) -> Response:
        """Who changed the tag

        Its definition, its assignments and everything else, the newest first; also under its former
        names."""
        tag: Tag = one(Tag.objects.all(), "tag", name=name)
        return self.events(trail.of(Event.Kind.TAG, tag.id))


class Audit(History):
    roles = {"GET": Role.ADMIN}
    filters = OF_ALL

    @extend_schema(operation_id="audit_list", responses=EventOut(many=True))
    def get(self, request: Request) -> Response:
        """Who changed what

        Every change of tags, clusters, tokens, users and their roles, the newest first."""
        return self.events(Event.objects.all())


def bodies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        del row["id"]
    return rows
