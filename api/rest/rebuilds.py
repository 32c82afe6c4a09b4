"""/api/v1/rebuilds/"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api import limits
from api.openapi import Says
from api.rest import filters, waits
from api.rest.base import Resource, Strict, one
from tagmill.tags import rebuilds, waiting
from tagmill.tags.models import Rebuild

# More at a time: ask for all.
MAX_TAGS = 1000
# How many tags a list names for each rebuild: it may have a thousand rebuilds of a thousand tags.
MAX_NAMES = 10


class RebuildIn(Strict):
    alternatives = {"RebuildSome": {"tags": {}}, "RebuildAll": {"all": {"const": True}}}
    tags = serializers.ListField(
        child=serializers.CharField(max_length=256, trim_whitespace=False),
        required=False,
        allow_empty=False,
        min_length=1,
        max_length=MAX_TAGS,
    )
    all = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("tags" in attrs) == bool(attrs.get("all")):
            raise serializers.ValidationError('send either "tags": [names] or "all": true')
        return attrs


class RebuildFields(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    reason = serializers.ChoiceField(Rebuild.Reason.choices)
    state = serializers.ChoiceField(Rebuild.State.choices)
    requested_by = serializers.CharField(source="requested_by.username", allow_null=True)
    requested_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    published_without = serializers.ListField(
        child=serializers.CharField(),
        help_text="Clusters that somebody published the definition without.",
    )


class RebuildSummary(RebuildFields):
    tags = serializers.ListField(
        child=serializers.CharField(),
        source="tag_names",
        help_text=f"The first {MAX_NAMES}; the rebuild itself has all of them.",
    )
    tag_count = serializers.IntegerField()
    tags_truncated = serializers.BooleanField(help_text="Whether there are more than `tags`.")


class Progress(serializers.Serializer[Any]):
    done = serializers.IntegerField(help_text="Matches: one for each definition and partition.")
    total = serializers.IntegerField()
    nodes_done = serializers.IntegerField()
    nodes_total = serializers.IntegerField()


class RebuildOut(RebuildFields):
    tags = serializers.ListField(child=serializers.CharField(), source="tags.all")
    progress = Progress()
    nodes_per_second = serializers.FloatField(allow_null=True)
    eta_seconds = serializers.FloatField(allow_null=True)
    waiting_for = waits.waits()


def all_rebuilds() -> QuerySet[Rebuild]:
    return Rebuild.objects.select_related("requested_by")


FIELDS = ("uuid", "reason", "state", "requested_at", "finished_at", "published_without")


def summaries(rows: list[Any]) -> list[dict[str, Any]]:
    """Summaries of rebuilds, in two queries, however many tags the rebuilds have."""
    found = rebuilds.first_tags([row["id"] for row in rows], MAX_NAMES)
    return [_summary(row, *found[row["id"]]) for row in rows]


def _summary(row: dict[str, Any], total: int, names: list[str]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in FIELDS},
        "requested_by": row["requested_by__username"],
        "tags": names,
        "tag_count": total,
        "tags_truncated": total > len(names),
    }


def body(uuid: UUID) -> Any:
    """Raises NotFound."""
    rebuild: Any = one(all_rebuilds(), "rebuild", uuid=uuid)
    found = rebuilds.progress(rebuild)
    rebuild.state = found.state
    rebuild.progress = found
    rebuild.nodes_per_second = found.nodes_per_second
    rebuild.eta_seconds = found.eta_seconds
    is_running = found.state == Rebuild.State.RUNNING
    waited = waiting.waiting_for(rebuilds=[rebuild.id] if is_running else ()).rebuilds
    rebuild.waiting_for = waits.bodies(waited.get(rebuild.id, []))
    return RebuildOut(rebuild).data


def accepted(request: Request, rebuild: Rebuild) -> Response:
    place = reverse("rebuild", [rebuild.uuid], request=request)
    return Response(body(rebuild.uuid), 202, headers={"Location": place})


BEGUN = Says(
    errors=("not_found", "manual_tag"),
    headers=("Location",),
    links={
        "read": ("rebuilds_retrieve", {"uuid": "$response.body#/uuid"}),
        "cancel": ("rebuilds_cancel", {"uuid": "$response.body#/uuid"}),
    },
)
FILTERS = (
    filters.choice("state", Rebuild.State.values, "state", "How far it is."),
    filters.choice("reason", Rebuild.Reason.values, "reason", "Why it was begun."),
    filters.text("tag", "tags__name", "A tag that it is about."),
    filters.text("requested_by", "requested_by__username", "Who asked for it."),
    *filters.times("requested_at"),
)


class Rebuilds(Resource):
    body_limit = limits.LIST
    has_pages = True
    keyset = "-id"
    says = {"POST": BEGUN}
    orders = {"-requested_at": "-id", "requested_at": "id"}
    filters = FILTERS
    serializer_class = RebuildSummary
    queryset = Rebuild.objects.all()

    @extend_schema(operation_id="rebuilds_list", responses=RebuildSummary(many=True))
    def get(self, request: Request) -> Response:
        """List the rebuilds

        The newest first, with the names of a few of their tags."""
        rows = Rebuild.objects.values("id", "requested_by__username", *FIELDS)
        return self.page(rows, summaries)

    @extend_schema(
        request=RebuildIn,
        responses={202: RebuildOut},
        examples=[
            OpenApiExample("Some", value={"tags": ["gpu", "ssd"]}, request_only=True),
            OpenApiExample("All", value={"all": True}, request_only=True),
        ],
    )
    def post(self, request: Request) -> Response:
        """Rebuild tags

        Evaluates some tags, or all, everywhere again; until then the old sets stand."""
        names = self.given(RebuildIn).get("tags")
        return accepted(request, rebuilds.request(names, cast(User, request.user), "forced"))


class OneRebuild(Resource):
    says = {"GET": Says(headers=("Preference-Applied",))}
    serializer_class = RebuildOut
    queryset = Rebuild.objects.all()

    @extend_schema(parameters=[waits.PREFER])
    def get(self, request: Request, uuid: UUID) -> Response:
        """Get a rebuild

        Its progress, and what it waits for. `Prefer: wait=N` waits until it is over."""
        return Response(body(uuid))


class CancelRebuild(Resource):
    says = {"POST": Says(errors=("not_cancellable",))}
    serializer_class = RebuildOut
    queryset = Rebuild.objects.all()

    @extend_schema(operation_id="rebuilds_cancel", request=None)
    def post(self, request: Request, uuid: UUID) -> Response:
        """Cancel a rebuild

        What is published stays."""
        one(Rebuild.objects.all(), "rebuild", uuid=uuid)
        rebuilds.cancel(uuid)
        return Response(body(uuid))
