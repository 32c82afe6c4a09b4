"""/api/v1/: what there is."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api.rest.base import Resource
from api.roles import Role
from tagmill.tags.models import Tag

LISTS = (
    *("audit", "clusters", "nodes", "partitions", "rebuilds", "tags", "user-tokens", "users"),
    *("worker-tokens", "workers"),
)


# Natively served: api/server/feed.py, api/server/session.py.
STREAMS = ("changes", "events")


class RootOut(serializers.Serializer[Any]):
    lists = serializers.DictField(
        child=serializers.URLField(), help_text="The address of each list by its name."
    )
    streams = serializers.DictField(
        child=serializers.URLField(), help_text="Where to watch what changes."
    )
    description = serializers.URLField(help_text="The OpenAPI description.")
    documentation = serializers.URLField(help_text="The same, to read and to try.")


class Root(Resource):
    roles = {"GET": Role.NONE}
    serializer_class = RootOut
    queryset = Tag.objects.none()

    @extend_schema(operation_id="root", tags=["server"])
    def get(self, request: Request) -> Response:
        """Say what there is"""
        here = reverse("root", request=request)
        return Response(
            {
                "streams": {name: f"{here}{name}" for name in STREAMS},
                "lists": {name: reverse(name, request=request) for name in LISTS},
                "description": reverse("schema", request=request),
                "documentation": reverse("docs", request=request),
            }
        )
