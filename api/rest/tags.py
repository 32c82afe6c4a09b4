"""/api/v1/tags/"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api import etags, limits
from api.encoding import dumps
from api.renderers import NDJSON, JSONRenderer, NDJSONRenderer
from api.rest import rebuilds as rebuild_resources
from api.rest import waits
from api.rest.base import Resource, Strict, one, with_etag
from api.strict import refuse_unknown
from tagmill import sql
from tagmill.config import load
from tagmill.errors import TooLarge
from tagmill.fleet.models import Node
from tagmill.tags import (
    assignments,
    freshness,
    linting,
    members,
    partial,
    places,
    rebuilds,
    tags,
    waiting,
)
from tagmill.tags.models import TAG_NAME, Tag
from tagmill_expressions.lint import CODES

# Kept short of what one transaction over the partitions' bitmaps does in well under a second.
MAX_ASSIGNED = 10_000
MAX_NAMESPACES = 32
MAX_CLUSTERS = 1000
# In one page of a tag's nodes: three quarters of a megabyte of JSON, and a tenth of a second.
MAX_NODES = 10_000


class TagFields(Strict):
    name = serializers.RegexField(rf"\A{TAG_NAME}\Z", max_length=256, trim_whitespace=False)
    comment = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    kernel_opts = serializers.CharField(required=False, allow_blank=True, max_length=4096)
    definition = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        trim_whitespace=False,
        help_text="XPath 1.0. Null or empty: a manual tag.",
    )
    namespaces = serializers.DictField(
        child=serializers.CharField(max_length=2048),
        required=False,
        help_text="URI by prefix.",
    )
    kind = serializers.ChoiceField(
        ["automatic", "manual"],
        required=False,
        help_text="Asks for the other kind: a definition gives up what was assigned by hand, and "
        "an automatic tag becomes a manual one with the nodes that it has.",
    )

    def validate_definition(self, text: str | None) -> str | None:
        limit = load().definition_bytes
        if text and len(text.encode()) > limit:
            raise TooLarge(
                f"the definition is longer than {limit} bytes (TAGMILL_DEFINITION_BYTES)",
                limit=limit,
                field="definition",
            )
        return text or None

    def validate_namespaces(self, namespaces: dict[str, str]) -> dict[str, str]:
        if len(namespaces) > MAX_NAMESPACES:
            raise serializers.ValidationError(f"at most {MAX_NAMESPACES} prefixes")
        return namespaces


class DefinitionIn(Strict):
    """A definition that no tag need have."""

    definition = serializers.CharField(trim_whitespace=False, help_text="XPath 1.0.")
    namespaces = serializers.DictField(
        child=serializers.CharField(max_length=2048), default=dict, help_text="URI by prefix."
    )

    validate_namespaces = TagFields.validate_namespaces


class Assignment(Strict):
    add = serializers.ListField(
        child=serializers.CharField(max_length=64), required=False, max_length=MAX_ASSIGNED
    )
    remove = serializers.ListField(
        child=serializers.CharField(max_length=64), required=False, max_length=MAX_ASSIGNED
    )


class PublishIn(Strict):
    without = serializers.ListField(
        child=serializers.CharField(max_length=256),
        allow_empty=False,
        max_length=MAX_CLUSTERS,
        help_text="Clusters, by name or uuid.",
    )


class Assigned(serializers.Serializer[Any]):
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    unknown = serializers.ListField(child=serializers.CharField())


class Freshness(serializers.Serializer[Any]):
    partitions = serializers.IntegerField()
    pending = serializers.IntegerField(help_text="Partitions whose match is not up to date.")
    evaluated_at = serializers.DateTimeField(allow_null=True)


class WarningOut(serializers.Serializer[Any]):
    code = serializers.ChoiceField(sorted(CODES))
    message = serializers.CharField()
    column = serializers.IntegerField(help_text="From 1, in characters.")
    end_column = serializers.IntegerField(help_text="Of the last character.")
    rewrite = serializers.CharField(
        allow_null=True, help_text="The whole definition as it was most likely meant."
    )


class TagOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(["automatic", "manual"])
    comment = serializers.CharField()
    kernel_opts = serializers.CharField()
    definition = serializers.CharField(
        allow_null=True, help_text="The published one: what the node set answers now."
    )
    namespaces = serializers.DictField(child=serializers.CharField())
    pending_definition = serializers.CharField(
        allow_null=True, help_text="Published once it is evaluated everywhere."
    )
    pending_namespaces = serializers.DictField(child=serializers.CharField(), allow_null=True)
    state = serializers.ChoiceField(["ready", "building", "failed"])
    failure = serializers.CharField(allow_null=True)
    waiting_for = waits.waits()
    node_count = serializers.IntegerField()
    freshness = Freshness()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class TagDetail(TagOut):
    warnings = WarningOut(
        many=True, help_text="Of the pending definition, where there is one, or the published one."
    )


class Member(serializers.Serializer[Any]):
    system_id = serializers.CharField()
    hostname = serializers.CharField()
    kind = serializers.CharField()


def member(node: places.Found) -> dict[str, str]:
    return {"system_id": node.system_id, "hostname": node.hostname, "kind": node.kind}


def all_tags() -> QuerySet[Tag]:
    """All tags, with no more of their expressions than clients see: there may be a thousand."""
    shown = [
        f"{expression}__{field}"
        for expression in ("expression", "pending_expression")
        for field in ("text", "namespaces")
    ]
    rows = Tag.objects.select_related("expression", "pending_expression")
    return rows.only(*(field.name for field in Tag._meta.concrete_fields), *shown)


def bodies(rows: Sequence[Tag]) -> list[dict[str, Any]]:
    """The tags as TagOut describes them, in a number of queries that does not depend on how many.
    A serializer would take as long for a thousand as all the rest."""
    found = freshness.status(rows)
    waited = waiting.waiting_for(
        [_target(tag) for tag in rows if found[tag.id].state != "ready"]
    ).expressions
    return [_body(tag, found[tag.id], waited.get(_target(tag), [])) for tag in rows]


def answer(tag: Tag, status: int = 200, **headers: str) -> Response:
    """One tag, with the warnings about what it says."""
    current = tag.pending_expression or tag.expression
    found = linting.of_expression(current) if current else ()
    body = {**bodies([tag])[0], "warnings": [warning.to_dict() for warning in found]}
    return Response(body, status, headers={"ETag": etags.of_tag(tag), **headers})


def tag_named(name: str) -> Tag:
    """Raises NotFound."""
    found: Tag = one(all_tags(), "tag", name=name)
    return found


def _target(tag: Tag) -> int:
    """The expression that the tag is to have."""
    return tag.pending_expression_id or tag.expression_id or 0


def _body(tag: Tag, status: freshness.TagStatus, waited: Sequence[waiting.Wait]) -> dict[str, Any]:
    published, pending = tag.expression, tag.pending_expression
    return {
        "name": tag.name,
        "kind": "automatic" if published or pending else "manual",
        "comment": tag.comment,
        "kernel_opts": tag.kernel_opts,
        "definition": published.text if published else None,
        "namespaces": published.namespaces if published else {},
        "pending_definition": pending.text if pending else None,
        "pending_namespaces": pending.namespaces if pending else None,
        "state": status.state,
        "failure": status.failure or None,
        "waiting_for": waits.bodies(waited),
        "node_count": status.node_count,
        "freshness": {
            "partitions": status.partitions,
            "pending": status.pending,
            "evaluated_at": status.evaluated_at,
        },
        "created_at": tag.created_at,
        "updated_at": tag.updated_at,
    }


EXAMPLE = OpenApiExample(
    "Machines with a GPU",
    value={"name": "gpu", "definition": '//node[@class="display"]', "comment": "any GPU"},
    request_only=True,
)


class Tags(Resource):
    has_pages = True
    keyset = "name"
    body_limit = limits.DEFINITION
    serializer_class = TagOut
    queryset = Tag.objects.all()

    @extend_schema(operation_id="tags_list", responses=TagOut(many=True))
    def get(self, request: Request) -> Response:
        return self.page(all_tags(), bodies)

    @extend_schema(request=TagFields, responses={201: TagDetail}, examples=[EXAMPLE])
    def post(self, request: Request) -> Response:
        """400 `invalid_definition`, with the `column`, when the definition is not XPath 1.0."""
        given = self.given(TagFields)
        made = tags.create(
            given["name"],
            definition=given.get("definition"),
            namespaces=given.get("namespaces", {}),
            comment=given.get("comment", ""),
            kernel_opts=given.get("kernel_opts", ""),
            kind=given.get("kind"),
            by=cast(User, request.user),
        )
        place = reverse("tag", [made.name], request=request)
        return answer(made, 201, Location=place)


class OneTag(Resource):
    conditional = frozenset({"PATCH", "DELETE"})
    body_limit = limits.DEFINITION
    serializer_class = TagDetail
    queryset = Tag.objects.all()

    def get(self, request: Request, name: str) -> Response:
        return answer(tag_named(name))

    @extend_schema(request=TagFields, examples=[EXAMPLE])
    def patch(self, request: Request, name: str) -> Response:
        """A new definition is `pending_definition` until it is evaluated everywhere. 409
        `kind_change` where it would make a tag of the other kind, and `kind` does not say so."""
        changes = self.given(TagFields, is_partial=True)
        by, expected = cast(User, request.user), _expected(request)
        if changes:
            return answer(tags.update(name, by=by, expects=expected, **changes))
        found = tag_named(name)
        expected(found)
        return answer(found)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        tags.delete(name, _expected(request))
        return Response(status=204)


def _expected(request: Request) -> Callable[[Tag], None]:
    condition = etags.condition(request.headers.get)
    return lambda tag: condition.check(etags.of_tag(tag))


class NodesOfTag(Resource):
    """The nodes of the published definition. 304 while the membership has not changed.
    `Accept: application/x-ndjson` asks for all of them in one answer, a line each."""

    has_pages = True
    max_limit = MAX_NODES
    renderer_classes = (JSONRenderer, NDJSONRenderer)
    serializer_class = Member
    queryset = Node.objects.all()

    @extend_schema(responses={200: Member(many=True), (200, NDJSON): OpenApiTypes.STR})
    def get(self, request: Request, name: str) -> HttpResponseBase:
        tag = tag_named(name)
        if request.accepted_renderer.media_type == NDJSON:
            return self._all(tag)
        return with_etag(
            request,
            members.etag(tag),
            lambda: self.keyed_page(
                lambda after, limit: places.matching(places.Filters(tags=(tag.id,)), after, limit),
                lambda rows: [member(row) for row in rows],
            ),
        )

    def _all(self, tag: Tag) -> StreamingHttpResponse:
        """As of one moment."""
        refuse_unknown(self.request.query_params, (), "parameter")
        return StreamingHttpResponse(_lines(tag.id), content_type=NDJSON)


def _lines(tag: int) -> Iterator[bytes]:
    """All nodes of a tag, a line each, in blocks."""
    wanted, after = places.Filters(tags=(tag,)), places.BEFORE_ALL
    with sql.snapshot():
        while rows := places.matching(wanted, after, MAX_NODES):
            yield b"".join(dumps(member(row)) + b"\n" for row in rows)
            after = rows[-1].key


class RebuildTag(Resource):
    serializer_class = rebuild_resources.RebuildOut
    queryset = Tag.objects.all()

    @extend_schema(request=None, responses={202: rebuild_resources.RebuildOut})
    def post(self, request: Request, name: str) -> Response:
        """Evaluates it everywhere again; until then the old set stands."""
        made = rebuilds.request([name], cast(User, request.user), "forced")
        return rebuild_resources.accepted(request, made)


class PublishTag(Resource):
    body_limit = limits.LIST
    serializer_class = TagDetail
    queryset = Tag.objects.all()

    @extend_schema(operation_id="tags_publish", request=PublishIn)
    def post(self, request: Request, name: str) -> Response:
        """Publishes the pending definition although it is not evaluated in these clusters: their
        nodes lose the tag until it is. 409 `not_complete` while another cluster is not done,
        `nothing_pending` where no definition waits."""
        partial.publish(name, self.given(PublishIn)["without"])
        return answer(tag_named(name))


class AssignTag(Resource):
    body_limit = limits.LIST
    serializer_class = Assigned
    queryset = Tag.objects.all()

    @extend_schema(request=Assignment, responses=Assigned)
    def post(self, request: Request, name: str) -> Response:
        """409 `automatic_tag` when it has a definition. Unknown nodes are named, not an error."""
        given = self.given(Assignment)
        return Response(assignments.assign(name, given.get("add", []), given.get("remove", [])))
