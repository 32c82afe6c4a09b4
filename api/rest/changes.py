"""/api/v1/tags/{name}/changes and /sizes: which nodes a tag gained and lost, and its size."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest import filters
from api.rest.base import Resource, one
from tagmill import sql
from tagmill.matches.models import MatchChange
from tagmill.tags import changes, sizes
from tagmill.tags.models import Tag


class ChangeOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    actor = serializers.CharField(help_text="Who assigned it; empty for an evaluation.")
    cluster = serializers.CharField(allow_null=True, help_text="Null: it is gone.")
    from_rev = serializers.IntegerField(
        allow_null=True, help_text="The partition's rev before it; null for the first evaluation."
    )
    to_rev = serializers.IntegerField(
        allow_null=True, help_text="As `from_rev` where nodes moved in with the tag."
    )
    added_count = serializers.IntegerField()
    removed_count = serializers.IntegerField()
    added = serializers.ListField(child=serializers.CharField(), help_text="system_ids.")
    removed = serializers.ListField(child=serializers.CharField())


BETWEEN = filters.times("at")


class ChangesOfTag(Resource):
    has_pages = True
    keyset = "-id"
    orders = {"-at": "-id", "at": "id"}
    filters = BETWEEN
    serializer_class = ChangeOut
    queryset = MatchChange.objects.all()

    @extend_schema(operation_id="tags_changes", responses=ChangeOut(many=True))
    def get(self, request: Request, name: str) -> Response:
        """Which nodes the tag gained and lost

        The newest first. An answer names at most 10,000 nodes: ask for fewer changes to see
        more of each."""
        tag: Tag = one(Tag.objects.all(), "tag", name=name)
        return self.page(
            changes.of(tag), lambda rows: [vars(change) for change in changes.described(rows)]
        )


class SizeOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    node_count = serializers.IntegerField(
        allow_null=True, help_text="From then on. Null: not known, its changes are not kept."
    )


class Sizes(serializers.Serializer[Any]):
    results = SizeOut(many=True)


class SizesOfTag(Resource):
    serializer_class = Sizes
    queryset = Tag.objects.all()

    @extend_schema(operation_id="tags_sizes")
    def get(self, request: Request, name: str) -> Response:
        """How many nodes the tag had

        From its making to now, by all definitions that it had; of many changes, so many that a
        chart can show."""
        tag: Tag = one(Tag.objects.all(), "tag", name=name)
        with sql.snapshot():
            return Response({"results": [point._asdict() for point in sizes.of(tag)]})
