"""/api/v1/partitions/: staleness for people, and batches for workers.

Under `manage.py serve` the native batch stream answers `partitions/{id}/nodes`, not this view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.rest.base import Resource
from api.rest.workers import WorkerCall, wire_answer
from api.roles import Role
from tagmill.config import load
from tagmill.errors import Invalid, NotFound
from tagmill.fleet import batches
from tagmill.fleet.models import Partition
from tagmill.matches import staleness

# A bigint has at most 19 digits; 18 always fit.
MAX_DIGITS = 18


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


class NodesOfPartition(WorkerCall):
    parameters = frozenset({"incarnation", "since", "after", "max_nodes", "max_bytes"})
    queryset = Partition.objects.all()

    @extend_schema(
        operation_id="partitions_nodes",
        responses=OpenApiTypes.OBJECT,
        description="See docs/protocol.md.",
        tags=["worker protocol"],
        parameters=[
            OpenApiParameter("incarnation", UUID, required=True),
            *(OpenApiParameter(name, int) for name in ("since", "after", "max_nodes", "max_bytes")),
        ],
    )
    def get(self, request: Request, partition: int) -> HttpResponse:
        readable = Partition.objects.filter(id=partition)
        if not self.token.all_clusters:
            readable = readable.filter(cluster__in=self.token.clusters.all())
        if not readable.exists():
            raise NotFound(f"no partition {partition}")
        config = load()
        batch = batches.read_in(
            request.query_params.get("incarnation", ""),
            partition,
            since=self._number("since"),
            after=self._number("after"),
            max_nodes=self._bounded("max_nodes", config.batch_nodes),
            max_bytes=self._bounded("max_bytes", config.batch_bytes),
        )
        return wire_answer(batch)

    def _number(self, name: str) -> int | None:
        text = self.request.query_params.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
            raise Invalid("must be a whole number, 0 or more", field=name)
        return int(text)

    def _bounded(self, name: str, limit: int) -> int:
        number = self._number(name)
        return limit if number is None else max(1, min(number, limit))


def _bodies(rows: list[Any]) -> Iterable[Any]:
    stale = staleness.by_partition(row.id for row in rows)
    for row in rows:
        row.stale = stale[row.id]
    return PartitionOut(rows, many=True).data
