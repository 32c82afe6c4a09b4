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
from api.openapi import Says
from api.rest import filters
from api.rest.base import Name, Resource, Strict
from api.rights import Scope
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


def counted(scope: Scope | None = None) -> QuerySet[Cluster]:
    """Those in the scope; without one, all."""
    rows = Cluster.objects.annotate(
        node_count=Sum("partitions__node_count", default=0), partition_count=Count("partitions")
    )
    return rows if scope is None or scope.ids is None else rows.filter(id__in=scope.ids)


def cluster_named(key: str, scope: Scope | None = None) -> Cluster:
    """The cluster with this uuid or name. Raises NotFound, also for one that is not in the
    scope."""
    return clusters.named(key, among=counted(scope))


MADE = Says(
    errors=("already_exists",),
    headers=("Location", "ETag"),
    links={"read": ("clusters_retrieve", {"cluster": "$response.body#/uuid"})},
)
FIELDS = tuple(ClusterOut().fields)
PREFIX = filters.text("prefix", "name__istartswith", "What the name begins with, in any case.")


class Clusters(Resource):
    roles = WRITING
    by_cluster = True
    says = {"POST": MADE}
    has_pages = True
    filters = (PREFIX,)
    orders = {"created_at": "id", "-created_at": "-id", "name": "name", "-name": "-name"}
    serializer_class = ClusterOut
    queryset = Cluster.objects.all()

    @extend_schema(operation_id="clusters_list", responses=ClusterOut(many=True))
    def get(self, request: Request) -> Response:
        """List the clusters"""
        return self.page(counted(self.granted).values("id", *FIELDS), _bodies)

    @extend_schema(request=ClusterIn, responses={201: ClusterOut})
    def post(self, request: Request) -> Response:
        """Make a cluster"""
        made = clusters.create(self.given(ClusterIn)["name"])
        place = reverse("cluster", [made.uuid], request=request)
        return _answer(cluster_named(str(made.uuid)), 201, Location=place)


def _bodies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        del row["id"]
    return rows


class OneCluster(Resource):
    roles = WRITING
    by_cluster = True
    conditional = frozenset({"PATCH", "DELETE"})
    says = {
        "GET": Says(headers=("ETag",)),
        "PATCH": Says(errors=("already_exists",), headers=("ETag",)),
        "DELETE": Says(errors=("still_in_use",)),
    }
    serializer_class = ClusterOut
    queryset = Cluster.objects.all()

    def get(self, request: Request, cluster: str) -> Response:
        """Get a cluster"""
        return _answer(cluster_named(cluster, self.granted))

    @extend_schema(request=ClusterIn)
    def patch(self, request: Request, cluster: str) -> Response:
        """Rename a cluster"""
        found = cluster_named(cluster, self.granted)
        clusters.rename(found, self.given(ClusterIn)["name"], _expected(request))
        return _answer(cluster_named(str(found.uuid)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, cluster: str) -> Response:
        """Delete a cluster

        It must have no nodes."""
        delete_cluster(cluster_named(cluster, self.granted), _expected(request))
        return Response(status=204)


def _answer(cluster: Cluster, status: int = 200, **headers: str) -> Response:
    body = {name: getattr(cluster, name) for name in FIELDS}
    return Response(body, status, headers={"ETag": etags.of_cluster(cluster), **headers})


def _expected(request: Request) -> Callable[[Cluster], None]:
    condition = etags.condition(request.headers.get)
    return lambda cluster: condition.check(etags.of_cluster(cluster))
