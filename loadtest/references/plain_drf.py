"""The nodes of a tag as anybody would write them with Django REST framework: a generic view, a
serializer, pages; and the addresses of a server that has it beside our own."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import include, path
from rest_framework import generics, serializers
from rest_framework.pagination import LimitOffsetPagination

from tagmill.fleet.models import Node


class NodeSerializer(serializers.ModelSerializer[Node]):
    class Meta:
        model = Node
        fields = ("system_id", "hostname", "kind")


class Pages(LimitOffsetPagination):
    max_limit = 10_000


class PlainNodes(generics.ListAPIView[Node]):
    serializer_class = NodeSerializer
    pagination_class = Pages

    def get_queryset(self) -> QuerySet[Node]:
        carried: dict[str, Any] = {"nodetag__tag__name": self.kwargs["name"]}
        return Node.objects.filter(deleted_at=None, **carried).order_by("partition_id", "slot")


urlpatterns = [
    path("plain/tags/<str:name>/nodes", PlainNodes.as_view()),
    path("", include("api.urls")),
]
