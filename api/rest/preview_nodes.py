"""/api/v1/previews/{uuid}/nodes and /api/v1/previews/{uuid}/members"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api import etags
from api.openapi import Says
from api.rest import node_filters, previews
from api.rest.base import Resource, with_etag
from api.rest.tag_nodes import Member, Members, bitmaps, member
from tagmill import sql
from tagmill.errors import Invalid
from tagmill.fleet.models import Node
from tagmill.tags import places
from tagmill.tags import previews as stored
from tagmill.tags.models import Preview

CHANGES = ("members", "out", "added", "removed")
CHANGE = OpenApiParameter("change", str, enum=list(CHANGES), description="Which.")


def asked_change(request: Request, preview: Preview) -> stored.Change:
    """Which of the preview's nodes are asked for. Raises Invalid."""
    change: Any = request.query_params.get("change", "members")
    if change not in CHANGES:
        raise Invalid(f"change must be one of {', '.join(CHANGES)}", field="change")
    if change in ("added", "removed") and preview.compare_to_id is None:
        raise Invalid("the preview is compared with no tag", field="change")
    found: stored.Change = change
    return found


class NodesOfPreview(Resource):
    roles = previews.OPERATOR
    has_pages = True
    parameters = frozenset({"change", "cluster"})
    filters = (node_filters.BEGIN,)
    serializer_class = Member
    queryset = Node.objects.all()

    @extend_schema(
        operation_id="previews_nodes_list",
        responses=Member(many=True),
        parameters=[CHANGE, previews.CLUSTER],
    )
    def get(self, request: Request, uuid: UUID) -> Response:
        """List the nodes of a preview

        Those that it matches. With `change`, those that it adds to `compare_to` or removes from it,
        or those that are `out`: evaluated, and not matched."""
        preview = stored.get(uuid)
        change = asked_change(request, preview)
        membership = previews.Asked.of(request).membership(preview)

        def rows(after: int, limit: int) -> list[places.Found]:
            return membership.page(change, after, limit)

        def count() -> int:
            return sum(bits.bit_count() for _, bits in membership.bitmaps(change))

        return self.keyed_page(rows, lambda found: [member(row) for row in found], count)


class MembersOfPreview(Resource):
    roles = previews.OPERATOR
    says = {"GET": Says(headers=("ETag",))}
    parameters = frozenset({"change", "cluster"})
    serializer_class = Members
    queryset = Node.objects.all()

    @extend_schema(operation_id="previews_members", parameters=[CHANGE, previews.CLUSTER])
    def get(self, request: Request, uuid: UUID) -> HttpResponseBase:
        """Get a preview's nodes as bitmaps

        The places of the nodes that `previews/{uuid}/nodes` lists with the same `change`, as
        `tags/{name}/members` has those of a tag. 304 while they are the same."""
        with sql.snapshot():
            preview = stored.get(uuid)
            change = asked_change(request, preview)
            found = bitmaps(previews.Asked.of(request).membership(preview).bitmaps(change))
        return with_etag(request, etags.make("members", found), lambda: Response(found))
