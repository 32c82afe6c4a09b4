"""/api/v1/nodes/{system_id}/document"""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api import etags
from api.openapi import Says
from api.renderers import BytesRenderer, JSONRenderer, XMLRenderer
from api.rest.base import Resource, one, with_etag
from api.rest.nodes import node_named, settled, store
from tagmill.errors import NotFound
from tagmill.fleet.models import Document
from tagmill.flows.ingest import Upload

LSHW = "lshw"
PROBE = OpenApiParameter("probe", str, default=LSHW, description="lshw, lldp, ...")


SHOWN = {(200, "application/xml", "application/octet-stream"): OpenApiTypes.BINARY}


class OneDocument(Resource):
    # PUT is native: api/server/documents.py.
    by_cluster = True
    conditional = frozenset({"DELETE"})
    says = {
        "GET": Says(headers=("ETag",), errors=("document_damaged",)),
        "DELETE": Says(headers=("Tagmill-Settled",)),
    }
    parameters = frozenset({"probe"})
    renderer_classes = [XMLRenderer, BytesRenderer, JSONRenderer]
    queryset = Document.objects.all()

    @property
    def probe(self) -> str:
        return self.request.query_params.get("probe", LSHW)

    @property
    def default_response_headers(self) -> dict[str, str]:
        """`Allow` names what is served at this address, by whomever."""
        found: dict[str, str] = super().default_response_headers
        return {**found, "Allow": f"{found['Allow']}, PUT"}

    @extend_schema(parameters=[PROBE], responses=SHOWN)
    def get(self, request: Request, system_id: str) -> HttpResponse:
        """Get a node's document

        The XML that one probe printed, as it was uploaded but for its XML declaration."""
        found: Document = one(self._documents(system_id), "document of the probe", probe=self.probe)
        return with_etag(request, etags.of_document(found.digest), lambda: _file(found))

    @extend_schema(parameters=[PROBE], responses={204: None})
    def delete(self, request: Request, system_id: str) -> Response:
        """Delete a node's document"""
        if not self._documents(system_id).filter(probe=self.probe).exists():
            raise NotFound(f"{system_id!r} has no document of the probe {self.probe!r}")
        expected = etags.condition(request.headers.get).of_document(self.probe)
        upload = Upload(system_id, probes={self.probe: None}, expects=expected)
        verdict = store(self.granted.guarded(upload), create=False)
        return Response(status=204, headers=settled(verdict.settled))

    def _documents(self, system_id: str) -> Any:
        return Document.objects.filter(node=node_named(system_id, self.granted))


def _file(found: Document) -> HttpResponse:
    answer = HttpResponse(found.xml.encode(), content_type="application/xml")
    # XML can hold scripts: it is shown to a browser as a file, never as a page.
    answer["Content-Disposition"] = "attachment"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer
