"""What is accepted: JSON by orjson, XML documents and NDJSON streams, all bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any

import orjson
from rest_framework.parsers import BaseParser

from api.limits import SMALL, BodyLimit
from api.problems import MalformedBody
from tagmill.config import load
from tagmill.errors import TooLarge

CHUNK_BYTES = 64 * 1024


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raises MalformedBody and TooLarge."""
        try:
            return orjson.loads(read_bounded(stream, _limit(parser_context)))
        except orjson.JSONDecodeError as error:
            raise MalformedBody(
                f"the body is not JSON: {error.msg}", line=error.lineno, column=error.colno
            ) from None


class XMLParser(BaseParser):
    """The body as it is; the domain checks it."""

    media_type = "application/xml"

    def parse(  # type: ignore[override]  # the stubs know forms and objects alone
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return read_bounded(stream, _limit(parser_context))


class TextXMLParser(XMLParser):
    media_type = "text/xml"


class NDJSONParser(BaseParser):
    """The lines of the body, read while they are used."""

    media_type = "application/x-ndjson"

    def parse(  # type: ignore[override]  # the stubs know forms and objects alone
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Iterator[bytes]:
        return lines(stream, load().import_line_bytes)


def read_bounded(stream: IO[Any], limit: BodyLimit) -> bytes:
    """The whole body. Raises TooLarge when it has more bytes."""
    size = limit.size
    body: bytes = stream.read(size + 1)
    if len(body) > size:
        raise TooLarge(f"the body is larger than {limit}", limit=size)
    return body


def _limit(context: Mapping[str, Any] | None) -> BodyLimit:
    """The limit that the view declares for which the body is parsed."""
    limit: BodyLimit = getattr((context or {}).get("view"), "body_limit", SMALL)
    return limit


def lines(stream: IO[Any], limit: int) -> Iterator[bytes]:
    """Lines without their ends. One that is longer than `limit` is cut just above it, so that the
    importer refuses it and nobody holds it."""
    line = bytearray()
    while chunk := stream.read(CHUNK_BYTES):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line += part[: max(0, limit + 1 - len(line))]
            yield bytes(line)
            line.clear()
        line += rest[: max(0, limit + 1 - len(line))]
    if line:
        yield bytes(line)
