"""What is sent: JSON by orjson. Documents and verdicts are bytes already when they get here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer

from api.encoding import dumps


class JSONRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else dumps(data)


NDJSON = "application/x-ndjson"


class NDJSONRenderer(JSONRenderer):
    """Lets a client ask for all rows in one answer, a line each; the view streams them."""

    media_type = NDJSON
    format = "ndjson"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        found = super().render(data)
        return found and found + b"\n"


class BytesRenderer(BaseRenderer):
    """For clients that know no other type for what is sent as it is; the view answers with it."""

    media_type = "application/octet-stream"
    format = "bytes"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else bytes(data)


class XMLRenderer(BytesRenderer):
    """Lets a client ask for the documents by their type."""

    media_type = "application/xml"
    format = "xml"
