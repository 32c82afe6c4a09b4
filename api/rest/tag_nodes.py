"""/api/v1/tags/{name}/nodes and /members; and /api/v1/places, where all nodes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import etags
from api.encoding import dumps
from api.openapi import Says
from api.renderers import NDJSON, JSONRenderer, NDJSONRenderer
from api.rest import filters, node_filters
from api.rest.base import Resource, with_etag
from api.rest.tags import tag_named
from api.strict import refuse_unknown
from tagmill import sql
from tagmill.fleet import incarnation
from tagmill.fleet.models import Node, Partition
from tagmill.tags import members, places, revisions
from tagmill_wire import bitmap

# In one page of a tag's nodes: three quarters of a megabyte of JSON, and a tenth of a second.
MAX_NODES = 10_000


class Member(serializers.Serializer[Any]):
    system_id = serializers.CharField()
    hostname = serializers.CharField()
    kind = serializers.CharField()


def member(node: places.Found) -> dict[str, str]:
    return {"system_id": node.system_id, "hostname": node.hostname, "kind": node.kind}


class NodesOfTag(Resource):
    says = {"GET": Says(headers=("ETag",))}
    has_pages = True
    max_limit = MAX_NODES
    keyset = node_filters.PLACED
    orders = node_filters.ORDERS
    filters = (*node_filters.FILTERS, node_filters.BEGIN)
    renderer_classes = (JSONRenderer, NDJSONRenderer)
    serializer_class = Member
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="tags_nodes_list",
        responses={(200, "application/json"): Member(many=True), (200, NDJSON): OpenApiTypes.STR},
    )
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """List the nodes of a tag

        Those of the published definition, or assigned by hand. 304 while the membership has not
        changed. `Accept: application/x-ndjson` asks for all of them in one answer, a line each,
        without pages."""
        tag = tag_named(name)
        found = node_filters.chosen(self.asked, self.granted, tags=(tag.id,))
        if request.accepted_renderer.media_type == NDJSON:
            known = (each.name for each in node_filters.FILTERS)
            refuse_unknown(request.query_params, known, "parameter")
            return StreamingHttpResponse(_lines(found), content_type=NDJSON)
        return with_etag(
            request,
            members.etag(tag),
            lambda: node_filters.page(self, found, lambda rows: [member(row) for row in rows]),
        )


def _lines(wanted: places.Filters) -> Iterator[bytes]:
    """All of these nodes as of one moment, a line each, in blocks."""
    after = places.BEFORE_ALL
    with sql.snapshot():
        while rows := places.matching(wanted, after, MAX_NODES):
            yield b"".join(dumps(member(row)) + b"\n" for row in rows)
            after = rows[-1].key


class PartitionMembers(serializers.Serializer[Any]):
    """The members in one partition."""

    partition = serializers.IntegerField()
    cluster = serializers.CharField()
    count = serializers.IntegerField(help_text="How many there are in this partition.")
    slots = serializers.CharField(
        help_text="A bitmap in base64: slot n is bit n % 8, the least significant first, of byte "
        "n // 8. Bytes after the last member are left out."
    )


class Members(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    partitions = PartitionMembers(
        many=True, help_text="In the order of the list of nodes; without those that have none."
    )


class MembersOfTag(Resource):
    says = {"GET": Says(headers=("ETag",))}
    parameters = frozenset(each.name for each in node_filters.FILTERS)
    serializer_class = Members
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="tags_members", parameters=[each.parameter() for each in node_filters.FILTERS]
    )
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """Get a tag's members as bitmaps

        The places of all nodes of the tag, in the order in which `tags/{name}/nodes` lists them:
        by partition, then by slot. One node is one bit: an answer about 100,000 nodes is some 20
        kB. `tags/{name}/nodes?begin=partition.slot` lists those from a place on. 304 while nothing
        has changed."""
        note_incarnation()
        with sql.snapshot():
            tag = tag_named(name)
            asked = filters.asked(node_filters.FILTERS, request.query_params.dict())
            found = node_filters.chosen(asked, self.granted, tags=(tag.id,))
            etag = etags.make("members", revisions.of_nodes([name]))
            return with_etag(request, etag, lambda: Response(bitmaps(places.live(found))))


class Places(Resource):
    by_cluster = True
    says = {"GET": Says(headers=("ETag",))}
    parameters = frozenset({"tag", "not_tag", *(each.name for each in node_filters.FILTERS)})
    serializer_class = Members
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="places",
        tags=["nodes"],
        parameters=[*node_filters.TAGS, *(each.parameter() for each in node_filters.FILTERS)],
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Get the places of nodes as bitmaps

        Of all nodes that `nodes/` lists with the same filters, in its order by places, as
        `tags/{name}/members` has those of a tag. 304 while nothing has changed."""
        query = request.query_params
        note_incarnation()
        with sql.snapshot():
            asked = filters.asked(node_filters.FILTERS, query.dict())
            found = node_filters.of_list(asked, query, self.granted)
            named = [*query.getlist("tag"), *query.getlist("not_tag")]
            etag = etags.make("places", self.granted.ids, revisions.of_nodes(named))
            return with_etag(request, etag, lambda: Response(bitmaps(places.live(found))))


def note_incarnation() -> None:
    """Before a snapshot, which writes nothing: after a restore, the first to ask makes one."""
    incarnation.current()


def bitmaps(parts: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """The slots of partitions as Members describes them."""
    clusters = dict(Partition.objects.values_list("id", "cluster__name"))
    found = [
        {
            "partition": partition,
            "cluster": clusters[partition],
            "count": bits.bit_count(),
            "slots": bitmap.encode_short(bits),
        }
        for partition, bits in parts
        if bits
    ]
    return {"count": sum(each["count"] for each in found), "partitions": found}
