"""/api/v1/nodes/{system_id}/document"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import etags, limits
from api.parsers import TextXMLParser, XMLParser
from api.renderers import JSONRenderer, XMLRenderer
from api.rest.base import Resource, one, with_etag
from api.rest.nodes import node_named, settled, store
from api.roles import Role
from tagmill.errors import NotFound
from tagmill.fleet.models import Document
from tagmill.flows.ingest import Upload

PROBE = OpenApiParameter("probe", str, default="lshw", description="lshw, lldp, ...")


class StoredOut(serializers.Serializer[Any]):
    outcome = serializers.ChoiceField(["updated", "unchanged"])
    rev = serializers.IntegerField()
    settled = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the node's tags are true already; false: workers look at it. null: "
        "nothing was stored, and its tags are as they were.",
    )


class OneDocument(Resource):
    """The XML that one probe printed, as it was uploaded but for its XML declaration."""

    roles = {"PUT": Role.UPLOADER}
    conditional = frozenset({"PUT", "DELETE"})
    parameters = frozenset({"probe"})
    parser_classes = [XMLParser, TextXMLParser]
    body_limit = limits.DOCUMENT
    renderer_classes = [XMLRenderer, JSONRenderer]
    serializer_class = StoredOut
    queryset = Document.objects.all()

    @property
    def probe(self) -> str:
        return self.request.query_params.get("probe", "lshw")

    @extend_schema(parameters=[PROBE], responses={(200, "application/xml"): OpenApiTypes.STR})
    def get(self, request: Request, system_id: str) -> HttpResponse:
        found: Document = one(self._documents(system_id), "document of the probe", probe=self.probe)
        return with_etag(request, etags.of_document(found.digest), lambda: _file(found))

    @extend_schema(
        parameters=[PROBE],
        request={"application/xml": OpenApiTypes.STR, "text/xml": OpenApiTypes.STR},
        responses={(200, "application/json"): StoredOut},
        examples=[OpenApiExample("lshw -xml", value="<list>...</list>", request_only=True)],
    )
    def put(self, request: Request, system_id: str) -> HttpResponse:
        body = request.data if isinstance(request.data, bytes) else b""
        upload = Upload(system_id, probes={self.probe: body}, expects=self._expected())
        verdict = store(upload, create=False)
        body = JSONRenderer().render(
            {"outcome": verdict.outcome, "rev": verdict.rev, "settled": verdict.settled}
        )
        return HttpResponse(body, content_type="application/json", headers=settled(verdict.settled))

    @extend_schema(parameters=[PROBE], responses={204: None})
    def delete(self, request: Request, system_id: str) -> Response:
        if not self._documents(system_id).filter(probe=self.probe).exists():
            raise NotFound(f"{system_id!r} has no document of the probe {self.probe!r}")
        upload = Upload(system_id, probes={self.probe: None}, expects=self._expected())
        verdict = store(upload, create=False)
        return Response(status=204, headers=settled(verdict.settled))

    def _expected(self) -> Callable[[Any], None]:
        condition, probe = etags.condition(self.request), self.probe

        def check(node: Any) -> None:
            digest = node.digests.get(probe)
            condition.check(None if digest is None else etags.of_document(digest))

        return check

    def _documents(self, system_id: str) -> Any:
        return Document.objects.filter(node=node_named(system_id))


def _file(found: Document) -> HttpResponse:
    answer = HttpResponse(found.xml.encode(), content_type="application/xml")
    # XML can hold scripts: it is shown to a browser as a file, never as a page.
    answer["Content-Disposition"] = "attachment"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer
