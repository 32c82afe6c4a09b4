"""/api/v1/partitions/: staleness for people."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest import filters
from api.rest.base import Resource
from api.rest.clusters import cluster_named
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


def _is_stale(wanted: bool) -> Q:
    some = Q(id__in=staleness.stale_partitions())
    return some if wanted else ~some


FIELDS = ("id", "number", "rev", "capacity", "next_slot", "node_count")
FILTERS = (
    filters.text("cluster", lambda key: Q(cluster=cluster_named(key).id), "Its name or uuid."),
    filters.flag("stale", _is_stale, "Whether any definition waits for evaluation there."),
)


class Partitions(Resource):
    roles = {"GET": Role.OPERATOR}
    has_pages = True
    filters = FILTERS
    orders = {"id": "id", "-id": "-id"}
    serializer_class = PartitionOut
    queryset = Partition.objects.all()

    @extend_schema(operation_id="partitions_list", responses=PartitionOut(many=True))
    def get(self, request: Request) -> Response:
        """List the partitions

        A partition holds the nodes of one cluster; what is `stale` there waits for a worker."""
        return self.page(Partition.objects.values("cluster__name", *FIELDS), _bodies)


def _bodies(rows: list[Any]) -> list[dict[str, Any]]:
    stale = staleness.by_partition(row["id"] for row in rows)
    for row in rows:
        row["cluster"] = row.pop("cluster__name")
        row["stale"] = stale[row["id"]]
    return rows
