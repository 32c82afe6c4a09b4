"""/api/v1/nodes/"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
)
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api import etags, limits
from api.openapi import Says
from api.rest import filters, node_filters
from api.rest.base import Resource, Strict, one
from api.roles import Role
from tagmill.errors import Invalid, NotFound
from tagmill.fleet import incarnation
from tagmill.fleet.models import Node
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill.tags import places
from tagmill.tags.models import Tag

# Says whether the tags are true when the answer arrives.
SETTLED = "Tagmill-Settled"
# Each is one more bitmap of every partition looked at.
MAX_TAG_FILTERS = 20
INCLUDE = filters.choice("include", ["tags"], None, "`tags`: each node with the tags it carries.")


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


class NodeIn(NodeChange):
    system_id = serializers.CharField(max_length=64)
    probes = serializers.DictField(
        child=serializers.CharField(trim_whitespace=False),
        required=False,
        help_text="The XML by probe: lshw, lldp, ...",
    )


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


class NodeDetail(NodeOut):
    tags = serializers.ListField(child=serializers.CharField(), help_text="Sorted.")
    probes = ProbeOut(many=True)


class NodeTags(serializers.Serializer[Any]):
    tags = serializers.ListField(child=serializers.CharField())


def live_nodes() -> QuerySet[Node]:
    return Node.objects.filter(deleted_at=None).select_related("partition__cluster")


def node_named(system_id: str) -> Node:
    """Raises NotFound."""
    found: Node = one(live_nodes(), "node", system_id=system_id)
    return found


def answer(system_id: str, headers: dict[str, str], status: int = 200) -> Response:
    node = node_named(system_id)
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
    }
    headers = {**headers, "ETag": etags.of_node(incarnation.current(), node.id, node.rev)}
    return Response(body, status, headers=headers)


def settled(value: bool | None) -> dict[str, str]:
    """The header that says whether the tags are true when the answer arrives; none where nothing
    was stored."""
    return {} if value is None else {SETTLED: "true" if value else "false"}


def store(upload: Upload, *, create: bool) -> ingest.Verdict:
    """Raises what the upload was refused for."""
    (verdict,) = ingest.store([upload], create=create)
    if verdict.error is not None:
        raise verdict.error
    return verdict


class Nodes(Resource):
    roles = {"POST": Role.UPLOADER}
    says = {"GET": Says(errors=("not_found",)), "POST": MADE}
    has_pages = True
    body_limit = limits.LARGE
    parameters = frozenset({"tag", "not_tag"})
    filters = (*node_filters.FILTERS, node_filters.BEGIN, INCLUDE)
    serializer_class = NodeOut
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="nodes_list",
        responses=NodeOut(many=True),
        parameters=[
            OpenApiParameter(
                "tag", str, many=True, description="Nodes that carry it. Repeat it: all of them."
            ),
            OpenApiParameter(
                "not_tag", str, many=True, description="Nodes that do not. Repeat it: none of them."
            ),
        ],
    )
    def get(self, request: Request) -> Response:
        """List the nodes

        In the order of clusters' partitions. All filters must hold."""
        found = self._filters()
        return self.keyed_page(
            lambda after, limit: places.matching(found, after, limit),
            lambda rows: _bodies(rows, self.asked.get("include")),
            lambda: places.count(found),
        )

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
        probes = {probe: xml.encode() for probe, xml in given.get("probes", {}).items()}
        verdict = store(_upload(system_id, given, probes), create=True)
        place = reverse("node", [system_id], request=request)
        return answer(system_id, {"Location": place, **settled(verdict.settled)}, 201)

    def _filters(self) -> places.Filters:
        """Raises NotFound for a tag that does not exist: a typing error must not look like no
        nodes."""
        given = self.request.query_params
        with_tags, without = given.getlist("tag"), given.getlist("not_tag")
        if len(with_tags) + len(without) > MAX_TAG_FILTERS:
            raise Invalid(f"at most {MAX_TAG_FILTERS} tags in one question", field="tag")
        tags, not_tags = _tag_ids(with_tags), _tag_ids(without)
        return node_filters.chosen(self.asked, tags=tags, not_tags=not_tags)


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
    roles = {"PATCH": Role.UPLOADER}
    conditional = frozenset({"PATCH", "DELETE"})
    says = {
        "GET": Says(headers=("ETag",)),
        "PATCH": Says(headers=("ETag", "Tagmill-Settled")),
        "DELETE": Says(headers=("Tagmill-Settled",)),
    }
    serializer_class = NodeDetail
    queryset = Node.objects.all()

    def get(self, request: Request, system_id: str) -> Response:
        """Get a node

        With its tags, and which documents it has."""
        return answer(system_id, {})

    @extend_schema(request=NodeChange)
    def patch(self, request: Request, system_id: str) -> Response:
        """Change a node

        Another `cluster` moves the node, with its documents and manual tags."""
        change = _upload(system_id, self.given(NodeChange), {}, _expected(request))
        verdict = store(change, create=False)
        return answer(system_id, settled(verdict.settled))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, system_id: str) -> Response:
        """Delete a node

        Its documents go with it."""
        is_settled = ingest.delete(system_id, _expected(request))
        return Response(status=204, headers=settled(is_settled))


class TagsOfNode(Resource):
    serializer_class = NodeTags
    queryset = Node.objects.all()

    def get(self, request: Request, system_id: str) -> Response:
        """List the tags of a node"""
        node = node_named(system_id)
        return Response({"tags": places.tags_of([places.key(node.partition_id, node.slot)])[0]})


def _expected(request: Request) -> Callable[[Any], None]:
    condition = etags.condition(request.headers.get)

    def check(node: Any) -> None:
        # It is called under locks, where none is made.
        condition.check(etags.of_node(incarnation.noted(), node.id, node.rev))

    return check


def _upload(
    system_id: str,
    given: dict[str, Any],
    probes: dict[str, bytes | None],
    expects: Callable[[Any], None] | None = None,
) -> Upload:
    return Upload(
        system_id=system_id,
        cluster=given.get("cluster"),
        hostname=given.get("hostname"),
        kind=given.get("kind"),
        probes=probes,
        expects=expects,
    )


def _tag_ids(names: Sequence[str]) -> tuple[int, ...]:
    """Raises NotFound."""
    found: dict[str, int] = {}
    if names:
        known = [name for name in names if "\0" not in name]
        found = dict(Tag.objects.filter(name__in=known).values_list("name", "id"))
    for name in names:
        if name not in found:
            raise NotFound(f"there is no tag {name!r}")
    return tuple(found[name] for name in names)
