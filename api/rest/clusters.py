"""/api/v1/clusters/"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Count, QuerySet, Sum
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api import etags
from api.rest.base import Name, Resource, Strict
from api.roles import Role
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tagmill.flows.clusters import delete as delete_cluster

WRITING = {"POST": Role.ADMIN, "PATCH": Role.ADMIN, "DELETE": Role.ADMIN}


class ClusterIn(Strict):
    name = Name()


class ClusterOut(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    node_count = serializers.IntegerField()
    partition_count = serializers.IntegerField()


def counted() -> QuerySet[Cluster]:
    return Cluster.objects.annotate(
        node_count=Sum("partitions__node_count", default=0), partition_count=Count("partitions")
    )


def cluster_named(key: str) -> Cluster:
    """The cluster with this uuid or name. Raises NotFound."""
    return clusters.named(key, among=counted())


class Clusters(Resource):
    roles = WRITING
    has_pages = True
    serializer_class = ClusterOut
    queryset = Cluster.objects.all()

    @extend_schema(operation_id="clusters_list", responses=ClusterOut(many=True))
    def get(self, request: Request) -> Response:
        return self.page(counted(), lambda rows: ClusterOut(rows, many=True).data)

    @extend_schema(request=ClusterIn, responses={201: ClusterOut})
    def post(self, request: Request) -> Response:
        made = clusters.create(self.given(ClusterIn)["name"])
        place = reverse("cluster", [made.uuid], request=request)
        return Response(
            ClusterOut(cluster_named(str(made.uuid))).data, 201, headers={"Location": place}
        )


class OneCluster(Resource):
    """`cluster` is its uuid or its name."""

    roles = WRITING
    conditional = frozenset({"PATCH", "DELETE"})
    serializer_class = ClusterOut
    queryset = Cluster.objects.all()

    def get(self, request: Request, cluster: str) -> Response:
        return _answer(cluster_named(cluster))

    @extend_schema(request=ClusterIn)
    def patch(self, request: Request, cluster: str) -> Response:
        found = cluster_named(cluster)
        clusters.rename(found, self.given(ClusterIn)["name"], _expected(request))
        return _answer(cluster_named(str(found.uuid)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, cluster: str) -> Response:
        """409 `still_in_use` while it has nodes."""
        delete_cluster(cluster_named(cluster), _expected(request))
        return Response(status=204)


def _answer(cluster: Cluster) -> Response:
    return Response(ClusterOut(cluster).data, headers={"ETag": etags.of_cluster(cluster)})


def _expected(request: Request) -> Callable[[Cluster], None]:
    condition = etags.condition(request.headers.get)
    return lambda cluster: condition.check(etags.of_cluster(cluster))
