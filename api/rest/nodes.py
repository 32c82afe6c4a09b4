"""/api/v1/nodes/"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    extend_schema,
    extend_schema_field,
)
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api import etags, limits
from api.openapi import Says
from api.renderers import NDJSON
from api.rest import filters, node_filters
from api.rest.base import Resource, Strict, one
from api.rights import Scope
from api.roles import Role
from tagmill.errors import Invalid
from tagmill.fleet import incarnation
from tagmill.fleet.models import Node
from tagmill.flows import replacing, together
from tagmill.flows.ingest import Upload, Verdict
from tagmill.tags import freshness, places

# Says whether the tags are true when the answer arrives.
SETTLED = "Tagmill-Settled"
TAGS, PROBES = "tags", "probes"
INCLUDE = filters.choice(
    "include",
    [TAGS, PROBES],
    None,
    "`tags`: each node with the tags it carries, as JSON; `probes`: with its documents, as NDJSON.",
)


MADE = Says(
    errors=("not_found", "already_exists", "invalid_document"),
    headers=("Location", "ETag", "Tagmill-Settled"),
    links={
        "read": ("nodes_retrieve", {"system_id": "$response.body#/system_id"}),
        "delete": ("nodes_destroy", {"system_id": "$response.body#/system_id"}),
    },
)


@extend_schema_field({"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,31}$"})
class Kind(serializers.CharField):
    """The domain says better what is wrong with one."""


class NodeChange(Strict):
    hostname = serializers.CharField(required=False, allow_blank=True, max_length=255)
    kind = Kind(required=False, max_length=32)
    cluster = serializers.CharField(
        required=False, max_length=256, help_text="Name or uuid; may be left out when there is one."
    )


class NodeWhole(NodeChange):
    probes = serializers.DictField(
        child=serializers.CharField(trim_whitespace=False),
        required=False,
        help_text="The XML by probe: lshw, lldp, ...",
    )


class NodeIn(NodeWhole):
    system_id = serializers.CharField(max_length=64, trim_whitespace=False)


class NodeOut(serializers.Serializer[Any]):
    system_id = serializers.CharField()
    hostname = serializers.CharField()
    kind = serializers.CharField()
    cluster = serializers.CharField()
    cluster_uuid = serializers.UUIDField()
    rev = serializers.IntegerField(help_text="Its partition's rev at this node's last change.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    tags = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Sorted. In a list where `include=tags` asks for them.",
    )


class ProbeOut(serializers.Serializer[Any]):
    probe = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    uploaded_at = serializers.DateTimeField()


class NodeFreshness(serializers.Serializer[Any]):
    """How true the node's tags are. Pending: some of them may be other ones soon."""

    definitions = serializers.IntegerField(help_text="That tags have.")
    pending = serializers.IntegerField(help_text="Those that wait for evaluation where it is.")
    evaluated_at = serializers.DateTimeField(
        allow_null=True, help_text="When a worker evaluated one there last."
    )


class NodeDetail(NodeOut):
    freshness = NodeFreshness()
    tags = serializers.ListField(child=serializers.CharField(), help_text="Sorted.")
    probes = ProbeOut(many=True)


class NodeTags(serializers.Serializer[Any]):
    tags = serializers.ListField(child=serializers.CharField())


def live_nodes() -> QuerySet[Node]:
    return Node.objects.filter(deleted_at=None).select_related("partition__cluster")


def node_named(system_id: str, scope: Scope) -> Node:
    """Raises NotFound, also for one that is not in the scope."""
    nodes = live_nodes()
    if scope.ids is not None:
        nodes = nodes.filter(partition__cluster__in=scope.ids)
    found: Node = one(nodes, "node", system_id=system_id)
    return found


def answer(system_id: str, scope: Scope, headers: dict[str, str], status: int = 200) -> Response:
    node = node_named(system_id, scope)
    cluster = node.partition.cluster
    probes = node.documents.order_by("probe").values("probe", "size", "uploaded_at")
    body = {
        "system_id": node.system_id,
        "hostname": node.hostname,
        "kind": node.kind,
        "cluster": cluster.name,
        "cluster_uuid": cluster.uuid,
        "rev": node.rev,
        "created_at": node.created_at,
        "updated_at": node.updated_at,
        "tags": places.tags_of([places.key(node.partition_id, node.slot)])[0],
        "probes": list(probes),
        "freshness": freshness.of_partition(node.partition_id)._asdict(),
    }
    headers = {**headers, "ETag": etags.of_node(incarnation.current(), node.id, node.rev)}
    return Response(body, status, headers=headers)


def settled(value: bool | None) -> dict[str, str]:
    """The header that says whether the tags are true when the answer arrives; none where nothing
    was stored."""
    return {} if value is None else {SETTLED: "true" if value else "false"}


def store(upload: Upload, *, create: bool) -> Verdict:
    """Raises what the upload was refused for."""
    return together.store(upload, create)


class Nodes(Resource):
    by_cluster = True
    roles = {"POST": Role.UPLOADER}
    says = {"GET": Says(errors=("not_found",)), "POST": MADE}
    has_pages = True
    body_limit = limits.LARGE
    keyset = node_filters.PLACED
    orders = node_filters.ORDERS
    parameters = frozenset({"tag", "not_tag"})
    filters = (*node_filters.FILTERS, node_filters.BEGIN, INCLUDE)
    serializer_class = NodeOut
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="nodes_list",
        responses={(200, "application/json"): NodeOut(many=True), (200, NDJSON): OpenApiTypes.STR},
        parameters=[*node_filters.TAGS],
    )
    def get(self, request: Request) -> Response:
        """List the nodes

        In the order of places: clusters' partitions, and slots in them. All filters must hold.
        `Accept: application/x-ndjson` asks for all of them in one answer, without pages, in the
        lines that `nodes/import` takes: with `include=probes` their documents, too."""
        if self.asked.get("include") == PROBES:
            raise Invalid(f"documents come with `Accept: {NDJSON}` alone", field="include")
        found = node_filters.of_list(self.asked, request.query_params, self.granted)
        include = self.asked.get("include")
        return node_filters.page(self, found, lambda rows: _bodies(rows, include))

    @extend_schema(
        request=NodeIn,
        responses={201: NodeDetail},
        examples=[
            OpenApiExample(
                "A node with its inventory",
                value={
                    "system_id": "4y3h7n",
                    "hostname": "rack1-node7",
                    "probes": {"lshw": "<list><node id='core'/></list>"},
                },
                request_only=True,
            )
        ],
    )
    def post(self, request: Request) -> Response:
        """Make a node

        With or without its documents, by their probes."""
        given = self.given(NodeIn)
        system_id = given["system_id"]
        verdict = store(self.granted.guarded(_upload(system_id, given)), create=True)
        return _made(request, verdict, self.granted)


def _made(request: Request, verdict: Verdict, scope: Scope) -> Response:
    place = reverse("node", [verdict.system_id], request=request)
    return answer(verdict.system_id, scope, {"Location": place, **settled(verdict.settled)}, 201)


def _bodies(rows: Sequence[places.Found], include: str | None) -> list[dict[str, Any]]:
    found = [_body(row) for row in rows]
    if include:
        for body, tags in zip(found, places.tags_of([row.key for row in rows]), strict=True):
            body["tags"] = tags
    return found


def _body(node: places.Found) -> dict[str, Any]:
    """A node as NodeOut describes it. A serializer takes as long for a page as all the rest."""
    return {name: value for name, value in node._asdict().items() if name != "key"}


class OneNode(Resource):
    by_cluster = True
    roles = {"PUT": Role.UPLOADER, "PATCH": Role.UPLOADER}
    conditional = frozenset({"PUT", "PATCH", "DELETE"})
    body_limit = limits.LARGE
    says = {
        "GET": Says(headers=("ETag",)),
        "PUT": Says(errors=("invalid_document",), headers=("Location", "ETag", "Tagmill-Settled")),
        "PATCH": Says(headers=("ETag", "Tagmill-Settled")),
        "DELETE": Says(headers=("Tagmill-Settled",)),
    }
    serializer_class = NodeDetail
    queryset = Node.objects.all()

    def get(self, request: Request, system_id: str) -> Response:
        """Get a node

        With its tags, and which documents it has."""
        return answer(system_id, self.granted, {})

    @extend_schema(
        operation_id="nodes_replace",
        request=NodeWhole,
        responses={200: NodeDetail, 201: NodeDetail},
    )
    def put(self, request: Request, system_id: str) -> Response:
        """Make or replace a node

        The node is as the body says, whatever it was: documents of other probes are deleted, and
        without a `hostname` it has none. Without a `cluster` it stays where it is. `If-None-Match:
        *` makes a node only where there is none."""
        whole = _upload(system_id, self.given(NodeWhole), _expected(request))
        verdict = replacing.put(self.granted.guarded(whole))
        if verdict.outcome == "created":
            return _made(request, verdict, self.granted)
        return answer(system_id, self.granted, settled(verdict.settled))

    @extend_schema(request=NodeChange)
    def patch(self, request: Request, system_id: str) -> Response:
        """Change a node

        Another `cluster` moves the node, with its documents and manual tags."""
        change = _upload(system_id, self.given(NodeChange), _expected(request))
        verdict = store(self.granted.guarded(change), create=False)
        return answer(system_id, self.granted, settled(verdict.settled))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, system_id: str) -> Response:
        """Delete a node

        Its documents go with it."""
        gone = self.granted.guarded(Upload(system_id, expects=_expected(request)))
        is_settled = together.delete(system_id, gone.expects)
        return Response(status=204, headers=settled(is_settled))


class TagsOfNode(Resource):
    by_cluster = True
    serializer_class = NodeTags
    queryset = Node.objects.all()

    def get(self, request: Request, system_id: str) -> Response:
        """List the tags of a node"""
        node = node_named(system_id, self.granted)
        return Response({"tags": places.tags_of([places.key(node.partition_id, node.slot)])[0]})


def _expected(request: Request) -> Callable[[Any], None]:
    condition = etags.condition(request.headers.get)

    def check(node: Any) -> None:
        # It is called under locks, where none is made.
        current = node and etags.of_node(incarnation.noted(), node.id, node.rev)
        condition.check(current)

    return check


def _upload(
    system_id: str,
    given: dict[str, Any],
    expects: Callable[[Any], None] | None = None,
) -> Upload:
    return Upload(
        system_id=system_id,
        cluster=given.get("cluster"),
        hostname=given.get("hostname"),
        kind=given.get("kind"),
        probes={probe: xml.encode() for probe, xml in given.get("probes", {}).items()},
        expects=expects,
    )
