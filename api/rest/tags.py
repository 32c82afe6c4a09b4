"""/api/v1/tags/"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet, TextField
from django.db.models.functions import Cast
from drf_spectacular.utils import OpenApiExample, extend_schema
from orjson import Fragment
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from api import etags, limits, pagination
from api.openapi import Says
from api.rest import filters, waits
from api.rest import rebuilds as rebuild_resources
from api.rest.base import Resource, Strict, one
from tagmill.config import load
from tagmill.errors import TooLarge
from tagmill.tags import (
    assignments,
    freshness,
    linting,
    partial,
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
STATES = ("ready", "building", "failed")
WARNING_CODES = sorted(CODES)
KINDS = ("automatic", "manual")


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
        KINDS,
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
        child=serializers.CharField(max_length=64, trim_whitespace=False),
        required=False,
        max_length=MAX_ASSIGNED,
    )
    remove = serializers.ListField(
        child=serializers.CharField(max_length=64, trim_whitespace=False),
        required=False,
        max_length=MAX_ASSIGNED,
    )


class PublishIn(Strict):
    without = serializers.ListField(
        child=serializers.CharField(max_length=256, trim_whitespace=False),
        allow_empty=False,
        min_length=1,
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
    code = serializers.ChoiceField(WARNING_CODES)
    message = serializers.CharField()
    column = serializers.IntegerField(help_text="From 1, in characters.")
    end_column = serializers.IntegerField(help_text="The column of the last character.")
    rewrite = serializers.CharField(
        allow_null=True, help_text="The whole definition as it was most likely meant."
    )


class TagOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
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
    state = serializers.ChoiceField(STATES)
    failure = serializers.CharField(allow_null=True)
    waiting_for = waits.waits()
    node_count = serializers.IntegerField()
    freshness = Freshness()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class TagDetail(TagOut):
    warnings = WarningOut(
        many=True,
        help_text="What lint says of the pending definition, or of the published one.",
    )


def all_tags() -> QuerySet[Tag]:
    """All tags, with no more of their expressions than clients see: there may be a thousand."""
    shown = [
        f"{expression}__{field}"
        for expression in ("expression", "pending_expression")
        for field in ("text", "namespaces")
    ]
    rows = Tag.objects.select_related("expression", "pending_expression")
    return rows.only(*(field.name for field in Tag._meta.concrete_fields), *shown)


# As an object, or as the JSON text that PostgreSQL has: thousands of them need not be parsed.
Namespaces = dict[str, str] | str | None


class Row(NamedTuple):
    """A tag as answers need it, without a model's instance for each."""

    id: int
    name: str
    comment: str
    kernel_opts: str
    created_at: datetime
    updated_at: datetime
    expression_id: int | None
    pending_expression_id: int | None
    definition: str | None
    namespaces: Namespaces
    pending_definition: str | None
    pending_namespaces: Namespaces


def rows_of(found: QuerySet[Tag]) -> QuerySet[Any]:
    """The tags, with the members of a Row."""
    written = found.annotate(
        definition=F("expression__text"),
        namespaces=Cast("expression__namespaces", TextField()),
        pending_definition=F("pending_expression__text"),
        pending_namespaces=Cast("pending_expression__namespaces", TextField()),
    )
    return written.values_list(*Row._fields, named=True)


def bodies(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The tags as TagOut describes them, in a number of queries that does not depend on how many.
    A serializer would take as long for a thousand as all the rest."""
    found = freshness.status(rows)
    waited = waiting.waiting_for(
        [_target(tag) for tag in rows if found[tag.id].state != "ready"]
    ).expressions
    return [_body(tag, found[tag.id], waited.get(_target(tag), [])) for tag in rows]


def answer(tag: Tag, status: int = 200, **headers: str) -> Response:
    """One tag, with the warnings about what it says."""
    published, pending = tag.expression, tag.pending_expression
    current = pending or published
    found = linting.of_expression(current) if current else ()
    row = Row(
        *(getattr(tag, name) for name in Row._fields[:8]),
        *((published.text, published.namespaces) if published else (None, None)),
        *((pending.text, pending.namespaces) if pending else (None, None)),
    )
    body = {**bodies([row])[0], "warnings": [warning.to_dict() for warning in found]}
    return Response(body, status, headers={"ETag": etags.of_tag(tag), **headers})


def tag_named(name: str) -> Tag:
    """Raises NotFound."""
    found: Tag = one(all_tags(), "tag", name=name)
    return found


def _target(tag: Row) -> int:
    """The expression that the tag is to have."""
    return tag.pending_expression_id or tag.expression_id or 0


def _body(tag: Row, status: freshness.TagStatus, waited: Sequence[waiting.Wait]) -> dict[str, Any]:
    return {
        "name": tag.name,
        "kind": "automatic" if _target(tag) else "manual",
        "comment": tag.comment,
        "kernel_opts": tag.kernel_opts,
        "definition": tag.definition,
        "namespaces": _json(tag.namespaces) or {},
        "pending_definition": tag.pending_definition,
        "pending_namespaces": _json(tag.pending_namespaces),
        "state": status.state,
        "failure": status.failure or None,
        "waiting_for": waits.bodies(waited) if waited else (),
        "node_count": status.node_count,
        "freshness": {
            "partitions": status.partitions,
            "pending": status.pending,
            "evaluated_at": status.evaluated_at,
        },
        "created_at": tag.created_at,
        "updated_at": tag.updated_at,
    }


def _json(namespaces: Namespaces) -> Any:
    return Fragment(namespaces) if isinstance(namespaces, str) else namespaces


EXAMPLE = OpenApiExample(
    "Machines with a GPU",
    value={"name": "gpu", "definition": '//node[@class="display"]', "comment": "any GPU"},
    request_only=True,
)


IS_AUTOMATIC = Q(expression__isnull=False) | Q(pending_expression__isnull=False)


def _says(text: str) -> Q:
    published = Q(expression__text__icontains=text)
    return published | Q(pending_expression__text__icontains=text)


def _mentions(text: str) -> Q:
    return _says(text) | Q(name__icontains=text) | Q(comment__icontains=text)


FILTERS = (
    filters.choice("state", STATES, None, "How far its definition is evaluated."),
    filters.choice(
        "kind",
        KINDS,
        lambda kind: IS_AUTOMATIC if kind == "automatic" else ~IS_AUTOMATIC,
        "Whether a definition decides, or somebody by hand.",
    ),
    filters.text("prefix", "name__startswith", "What the name begins with."),
    filters.text("definition", _says, "Text in the definition, published or pending, in any case."),
    filters.text("q", _mentions, "Text in the name, the comment or the definition, in any case."),
)


MADE = Says(
    errors=("already_exists", "invalid_definition"),
    headers=("Location", "ETag"),
    links={
        "read": ("tags_retrieve", {"name": "$response.body#/name"}),
        "nodes": ("tags_nodes_list", {"name": "$response.body#/name"}),
        "delete": ("tags_destroy", {"name": "$response.body#/name"}),
    },
)


class Tags(Resource):
    says = {"POST": MADE}
    has_pages = True
    keyset = "name"
    filters = FILTERS
    orders = {"name": "name", "-name": "-name", "created_at": "id", "-created_at": "-id"}
    body_limit = limits.DEFINITION
    serializer_class = TagOut
    queryset = Tag.objects.all()

    @extend_schema(operation_id="tags_list", responses=TagOut(many=True))
    def get(self, request: Request) -> Response:
        """List the tags

        Each with its state and how many nodes carry it."""
        rows = self.filtered(Tag.objects.all())
        if "state" in self.asked:
            return self._in_state(rows, self.asked["state"])
        page = pagination.page(rows_of(rows), request.query_params, self.order)
        return self.listed(bodies(page.rows), page.after, rows.count)

    def _in_state(self, rows: QuerySet[Tag], state: str) -> Response:
        """States are derived: those of all tags that the other filters leave are looked at."""
        parameters = self.request.query_params
        column = self.order.lstrip("-")
        limit = pagination.limit_of(parameters)
        every = list(rows_of(rows).order_by(self.order))
        found = freshness.status(every)
        chosen = [tag for tag in every if found[tag.id].state == state]
        left = pagination.beyond(chosen, parameters, self.order)
        after = pagination.encode(getattr(left[limit - 1], column)) if len(left) > limit else None
        return self.listed(bodies(left[:limit]), after, lambda: len(chosen))

    @extend_schema(request=TagFields, responses={201: TagDetail}, examples=[EXAMPLE])
    def post(self, request: Request) -> Response:
        """Make a tag

        With a `definition` it is automatic: building until it is evaluated everywhere. Without one
        it is manual, and nodes are assigned to it by hand."""
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
    says = {
        "GET": Says(headers=("ETag", "Preference-Applied")),
        "PATCH": Says(
            errors=("already_exists", "invalid_definition", "kind_change"), headers=("ETag",)
        ),
    }
    conditional = frozenset({"PATCH", "DELETE"})
    body_limit = limits.DEFINITION
    serializer_class = TagDetail
    queryset = Tag.objects.all()

    @extend_schema(parameters=[waits.PREFER])
    def get(self, request: Request, name: str) -> Response:
        """Get a tag

        With the warnings about what its definition says. `Prefer: wait=N` waits until it is not
        building any more."""
        return answer(tag_named(name))

    @extend_schema(request=TagFields, examples=[EXAMPLE])
    def patch(self, request: Request, name: str) -> Response:
        """Change a tag

        A new definition is `pending_definition` until it is evaluated everywhere. To make a tag of
        the other kind, `kind` has to say so."""
        changes = self.given(TagFields, is_partial=True)
        by, expected = cast(User, request.user), _expected(request)
        if changes:
            return answer(tags.update(name, by=by, expects=expected, **changes))
        found = tag_named(name)
        expected(found)
        return answer(found)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Delete a tag"""
        tags.delete(name, _expected(request))
        return Response(status=204)


def _expected(request: Request) -> Callable[[Tag], None]:
    condition = etags.condition(request.headers.get)
    return lambda tag: condition.check(etags.of_tag(tag))


class RebuildTag(Resource):
    says = {"POST": rebuild_resources.BEGUN}
    serializer_class = rebuild_resources.RebuildOut
    queryset = Tag.objects.all()

    @extend_schema(
        operation_id="tags_rebuild", request=None, responses={202: rebuild_resources.RebuildOut}
    )
    def post(self, request: Request, name: str) -> Response:
        """Rebuild a tag

        Evaluates it everywhere again; until then the old set stands."""
        made = rebuilds.request([name], cast(User, request.user), "forced")
        return rebuild_resources.accepted(request, made)


class PublishTag(Resource):
    says = {"POST": Says(errors=("nothing_pending", "not_complete"), headers=("ETag",))}
    body_limit = limits.LIST
    serializer_class = TagDetail
    queryset = Tag.objects.all()

    @extend_schema(operation_id="tags_publish", request=PublishIn)
    def post(self, request: Request, name: str) -> Response:
        """Publish a tag without some clusters

        Publishes the pending definition although it is not evaluated in these clusters: their nodes
        lose the tag until it is."""
        partial.publish(name, self.given(PublishIn)["without"])
        return answer(tag_named(name))


class AssignTag(Resource):
    says = {"POST": Says(errors=("automatic_tag",))}
    body_limit = limits.LIST
    serializer_class = Assigned
    queryset = Tag.objects.all()

    @extend_schema(operation_id="tags_assign", request=Assignment, responses=Assigned)
    def post(self, request: Request, name: str) -> Response:
        """Assign nodes to a manual tag

        Unknown nodes are named in the answer, and no error."""
        given = self.given(Assignment)
        return Response(assignments.assign(name, given.get("add", []), given.get("remove", [])))
