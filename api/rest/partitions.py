"""/api/v1/partitions/: staleness for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest.base import Resource
from api.roles import Role
from tagmill.fleet.models import Partition
from tagmill.matches import staleness


class PartitionOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    cluster = serializers.CharField(source="cluster.name")
    number = serializers.IntegerField()
    rev = serializers.IntegerField()
    capacity = serializers.IntegerField()
    next_slot = serializers.IntegerField()
    node_count = serializers.IntegerField()
    stale = serializers.IntegerField(help_text="Definitions that wait for evaluation here.")


class Partitions(Resource):
    roles = {"GET": Role.OPERATOR}
    has_pages = True
    serializer_class = PartitionOut
    queryset = Partition.objects.all()

    @extend_schema(operation_id="partitions_list", responses=PartitionOut(many=True))
    def get(self, request: Request) -> Response:
        return self.page(Partition.objects.select_related("cluster"), _bodies)


def _bodies(rows: list[Any]) -> Iterable[Any]:
    stale = staleness.by_partition(row.id for row in rows)
    for row in rows:
        row.stale = stale[row.id]
    return PartitionOut(rows, many=True).data
