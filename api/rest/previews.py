"""/api/v1/previews/: what a definition would match, before a tag has it.

`Prefer: wait=N` is held natively (api/server/previews.py); the answer here is at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.http import QueryDict
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits, pagination
from api.counters import MinuteThrottle
from api.openapi import Says
from api.rest import waits
from api.rest.base import Resource
from api.rest.clusters import cluster_named
from api.rest.tag_nodes import Member, member
from api.rest.tags import DefinitionIn, WarningOut
from api.rest.waits import PREFER
from api.roles import Role
from tagmill.config import load
from tagmill.errors import NotFound, PreviewGone
from tagmill.fleet.models import Cluster
from tagmill.tags import linting, places, previews, waiting
from tagmill.tags.models import Preview

OPERATOR = {"GET": Role.OPERATOR}
# In the environment of a request that somebody else goes on with: what nobody sees is not made.
BEGINS = "tagmill.begins"


class PreviewThrottle(MinuteThrottle):
    scope = "preview"

    def limit(self) -> int:
        return load().previews_per_minute

    def who(self, request: Request) -> str:
        return str(request.user.pk)


class PreviewIn(DefinitionIn):
    compare_to = serializers.CharField(
        required=False, allow_null=True, max_length=256, help_text="A tag."
    )
    client = serializers.CharField(
        required=False,
        max_length=256,
        help_text="A newer preview of the same client ends the older. Default: the token's.",
    )


class PreviewProgress(serializers.Serializer[Any]):
    partitions = serializers.IntegerField()
    pending = serializers.IntegerField(help_text="Partitions that are not evaluated yet.")


class Evaluated(serializers.Serializer[Any]):
    """What the counts are of, so far."""

    partitions = serializers.IntegerField()
    of = serializers.IntegerField(help_text="Partitions there are.")
    nodes = serializers.IntegerField(help_text="In the partitions evaluated.")


class ClusterCounts(serializers.Serializer[Any]):
    name = serializers.CharField()
    uuid = serializers.UUIDField()
    node_count = serializers.IntegerField(allow_null=True)
    added = serializers.IntegerField(allow_null=True)
    removed = serializers.IntegerField(allow_null=True)
    total = serializers.IntegerField(help_text="Its nodes.")
    share = serializers.FloatField(allow_null=True)


class MemberPage(serializers.Serializer[Any]):
    results = Member(many=True)
    next = serializers.URLField(allow_null=True)


class PreviewOut(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    definition = serializers.CharField()
    namespaces = serializers.DictField(child=serializers.CharField())
    state = serializers.ChoiceField(["evaluating", "complete", "failed"])
    failure = serializers.CharField(allow_null=True)
    progress = PreviewProgress()
    waiting_for = waits.waits()
    node_count = serializers.IntegerField(
        allow_null=True,
        help_text="Live nodes, of what is evaluated so far. Null while nothing is.",
    )
    total = serializers.IntegerField(help_text="Nodes of the fleet, or of the `cluster`.")
    share = serializers.FloatField(
        allow_null=True, help_text="0 to 1: `node_count` of the nodes evaluated so far."
    )
    evaluated = Evaluated()
    cluster = serializers.CharField(allow_null=True, help_text="That was asked about; null: all.")
    warnings = WarningOut(many=True)
    compare_to = serializers.CharField(allow_null=True)
    added = serializers.IntegerField(allow_null=True, help_text="Nodes that `compare_to` lacks.")
    removed = serializers.IntegerField(allow_null=True, help_text="Nodes that it alone has.")
    clusters = ClusterCounts(many=True)
    nodes = MemberPage(help_text="The first of them.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


EXAMPLES = [
    OpenApiExample(
        "Machines with two GPUs, against the tag gpu",
        value={"definition": 'count(//node[@class="display"]) = 2', "compare_to": "gpu"},
        request_only=True,
    ),
    OpenApiExample(
        "It would take 12 of 840 nodes away",
        value={
            "uuid": "0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11",
            "definition": 'count(//node[@class="display"]) = 2',
            "namespaces": {},
            "state": "complete",
            "failure": None,
            "progress": {"partitions": 4, "pending": 0},
            "waiting_for": [],
            "node_count": 828,
            "added": 0,
            "removed": 12,
            "total": 10000,
            "share": 0.0828,
            "evaluated": {"partitions": 4, "of": 4, "nodes": 10000},
            "cluster": None,
            "warnings": [],
            "compare_to": "gpu",
            "clusters": [
                {
                    "name": "north",
                    "uuid": "6f1c2a52-6c3e-4c63-9f0e-0b6b8f0d5a77",
                    "node_count": 828,
                    "added": 0,
                    "removed": 12,
                    "total": 10000,
                    "share": 0.0828,
                }
            ],
            "nodes": {
                "results": [{"system_id": "4y3h7n", "hostname": "rack1", "kind": "machine"}],
                "next": None,
            },
            "created_at": "2026-01-01T12:00:00Z",
            "expires_at": "2026-01-01T12:10:00Z",
        },
        response_only=True,
    ),
]
LIMIT = OpenApiParameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": pagination.MAX_LIMIT},
    description="Nodes in the answer.",
)
CLUSTER = OpenApiParameter("cluster", str, description="Name or uuid: of its nodes alone.")


@dataclass(frozen=True)
class Asked:
    """What a request wants to see of a preview. `base` is the absolute address of the API's
    previews, without a slash at its end."""

    base: str
    limit: int
    cluster: Cluster | None

    @classmethod
    def of(cls, request: Request) -> Asked:
        """Raises Invalid, and NotFound for the cluster."""
        return cls(base(request), *shown(request.query_params))

    def membership(self, preview: Preview) -> previews.Membership:
        return previews.Membership(preview, None if self.cluster is None else self.cluster.id)

    def address(self, preview: UUID, **more: str) -> str:
        """The address of a page of the preview's nodes."""
        query = {**more, "limit": str(self.limit)}
        if self.cluster is not None:
            query["cluster"] = str(self.cluster.uuid)
        return f"{self.base}/{preview}/nodes?{urlencode(query)}"


def shown(query: QueryDict) -> tuple[int, Cluster | None]:
    """How many nodes, and of which cluster. Raises Invalid, and NotFound for the cluster."""
    name = query.get("cluster")
    return pagination.limit_of(query), None if name is None else cluster_named(name)


def body(preview: Preview, progress: previews.Progress, asked: Asked) -> dict[str, Any]:
    found = asked.membership(preview)
    total = found.counts()
    warnings = linting.of_expression(preview.expression)
    is_compared = preview.compare_to is not None
    rows = found.page("members", -1, asked.limit + 1)
    return {
        "uuid": preview.uuid,
        "definition": preview.expression.text,
        "namespaces": preview.expression.namespaces,
        "state": progress.state,
        "failure": progress.failure or None,
        "progress": {"partitions": progress.partitions, "pending": progress.pending},
        "waiting_for": _waiting_for(preview, progress),
        **_counts(total, is_compared),
        "evaluated": {
            "partitions": total.evaluated_partitions,
            "of": total.partitions,
            "nodes": total.evaluated_nodes,
        },
        "cluster": None if asked.cluster is None else asked.cluster.name,
        "warnings": [warning.to_dict() for warning in warnings],
        "compare_to": preview.compare_to.name if preview.compare_to else None,
        "clusters": [
            {"name": cluster.name, "uuid": cluster.uuid, **_counts(counts, is_compared)}
            for cluster, counts in found.clusters()
        ],
        "nodes": _page(rows, asked.limit, asked.address(preview.uuid)),
        "created_at": preview.created_at,
        "expires_at": preview.expires_at,
    }


def answer(uuid: UUID, asked: Asked) -> tuple[int, dict[str, Any]]:
    """The status, 200 once it is over or else 202, and the body. Raises NotFound."""
    preview = previews.get(uuid)
    progress = previews.progress([uuid]).get(uuid)
    if progress is None:
        raise previews.gone(uuid)
    return (200 if progress.is_over else 202), body(preview, progress, asked)


def _waiting_for(preview: Preview, progress: previews.Progress) -> list[dict[str, Any]]:
    if progress.state == "complete":
        return []
    found = waiting.waiting_for(previews=[preview.id]).previews
    return waits.bodies(found.get(preview.id, []))


def _counts(counts: previews.Counts, is_compared: bool) -> dict[str, int | float | None]:
    """A script must not take a preview that has only begun for one that matches nothing."""
    shows_change = is_compared and counts.is_known
    return {
        "node_count": counts.nodes if counts.is_known else None,
        "added": counts.added if shows_change else None,
        "removed": counts.removed if shows_change else None,
        "total": counts.total,
        "share": counts.share,
    }


def _page(rows: list[places.Found], limit: int, address: str) -> dict[str, Any]:
    """`rows` has one more than the page when there is a next one."""
    page = rows[:limit]
    more = len(rows) > limit
    return {
        "results": [member(row) for row in page],
        "next": f"{address}&after={pagination.encode(page[-1].key)}" if more else None,
    }


class PreviewCall(Resource):
    roles = OPERATOR
    body_limit = limits.DEFINITION
    parameters = frozenset({"limit", "cluster"})
    serializer_class = PreviewOut
    queryset = Preview.objects.all()

    def answer(self, uuid: UUID, headers: dict[str, str] | None = None) -> Response:
        status, found = answer(uuid, Asked.of(self.request))
        return Response(found, status, headers=headers)


MADE = Says(
    errors=("not_found", "invalid_definition", "preview_gone", "busy"),
    headers=("Location", "Preference-Applied", "RateLimit", "RateLimit-Policy"),
    links={
        "read": ("previews_retrieve", {"uuid": "$response.body#/uuid"}),
        "nodes": ("previews_nodes_list", {"uuid": "$response.body#/uuid"}),
        "end": ("previews_destroy", {"uuid": "$response.body#/uuid"}),
    },
)


class Previews(PreviewCall):
    says = {"POST": MADE}
    throttle_classes = [PreviewThrottle]

    @extend_schema(
        operation_id="previews_create",
        request=PreviewIn,
        parameters=[LIMIT, CLUSTER, PREFER],
        responses={200: PreviewOut, 202: PreviewOut},
        examples=EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        """Begin a preview

        Evaluates a definition that no tag has, ahead of all other work. 200 when it is complete,
        202 while it is not; `Prefer: wait=N` waits. A newer preview of the client ends this one."""
        given = self.given(PreviewIn)
        # Before there is anything to wait for.
        Asked.of(request)
        made = previews.start(
            given["definition"],
            given["namespaces"],
            cast(User, request.user),
            given.get("client") or client_of(request),
            given.get("compare_to"),
        )
        headers = {"Location": f"{base(request)}/{made.uuid}"}
        if request.META.get(BEGINS):
            return Response(None, 202, headers=headers)
        try:
            return self.answer(made.uuid, headers)
        except NotFound:
            raise PreviewGone("a newer preview of the same client took its place") from None


class OnePreview(PreviewCall):
    says = {"GET": Says(errors=("invalid", "preview_gone"), headers=("Preference-Applied",))}

    @extend_schema(
        parameters=[LIMIT, CLUSTER, PREFER],
        responses={200: PreviewOut, 202: PreviewOut},
        examples=EXAMPLES[1:],
    )
    def get(self, request: Request, uuid: UUID) -> Response:
        """Get a preview

        200 once it is complete or failed, 202 before; `Prefer: wait=N` waits."""
        return self.answer(uuid)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, uuid: UUID) -> Response:
        """End a preview

        What is left to evaluate for it is left."""
        previews.cancel(uuid)
        return Response(status=204)


def base(request: Request) -> str:
    """The address of the API's previews, without a slash at its end."""
    return str(request.build_absolute_uri(reverse("previews"))).rstrip("/")


def client_of(request: Request) -> str:
    """Who says nothing about itself is one client for each token and each browser session."""
    key = getattr(request.auth, "digest", "") or request.COOKIES.get(
        settings.SESSION_COOKIE_NAME, ""
    )
    return f"by default {hashlib.blake2b(str(key).encode(), digest_size=16).hexdigest()}"
