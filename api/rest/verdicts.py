"""/api/v1/previews/{uuid}/verdicts: whether a preview matches the nodes that are named."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest.base import Resource
from api.roles import Role
from tagmill.errors import Invalid
from tagmill.fleet.models import Node
from tagmill.tags import previews

# As many as somebody pins to look at them; the whole list is the preview's nodes.
MAX_VERDICTS = 100


class VerdictOut(serializers.Serializer[Any]):
    system_id = serializers.CharField()
    hostname = serializers.CharField()
    cluster = serializers.CharField()
    member = serializers.BooleanField(
        allow_null=True, help_text="Null: it is not evaluated there yet."
    )


class VerdictsOut(serializers.Serializer[Any]):
    results = VerdictOut(many=True, help_text="Nodes that there are not are left out.")


class VerdictsOfPreview(Resource):
    roles = {"GET": Role.OPERATOR}
    parameters = frozenset({"node"})
    serializer_class = VerdictsOut
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="previews_verdicts",
        parameters=[
            OpenApiParameter(
                "node", str, many=True, required=True, description="A system_id; at most 100."
            )
        ],
    )
    def get(self, request: Request, uuid: UUID) -> Response:
        """Ask whether a preview matches nodes

        Those that are named, and those of them that there are."""
        names = request.query_params.getlist("node")
        if not 1 <= len(names) <= MAX_VERDICTS:
            raise Invalid(f"name 1 to {MAX_VERDICTS} nodes", field="node")
        if any("\0" in name for name in names):
            raise Invalid("a system_id has no NUL character", field="node")
        found = previews.verdicts(previews.get(uuid), names)
        return Response({"results": [verdict._asdict() for verdict in found]})
