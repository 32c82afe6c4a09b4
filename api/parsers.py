"""What is accepted: JSON, workers' messages, XML documents and NDJSON streams, all bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any, TypeVar

import orjson
from rest_framework.parsers import BaseParser

from api.limits import SMALL, BodyLimit
from api.problems import MalformedBody, UnknownField
from tagmill.config import load
from tagmill.errors import Invalid, TooLarge
from tagmill_wire import messages

CHUNK_BYTES = 64 * 1024

T = TypeVar("T", bound=messages.Message)


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raises MalformedBody and TooLarge."""
        return decoded(read_bounded(stream, _limit(parser_context)))


class BytesParser(BaseParser):
    """The body as it is; whoever takes it checks it."""

    def parse(  # type: ignore[override]  # the stubs know forms and objects alone
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return read_bounded(stream, _limit(parser_context))


class MessageParser(BytesParser):
    media_type = "application/json"


class XMLParser(BytesParser):
    media_type = "application/xml"


class TextXMLParser(BytesParser):
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


def decoded(body: bytes) -> Any:
    """The value of a body of JSON. Raises MalformedBody."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(
            f"the body is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from None


def message(kind: type[T], body: bytes) -> T:
    """A worker's message. Raises MalformedBody, and Invalid with the place in it."""
    try:
        return messages.load(kind, body)
    except messages.NotJSON as error:
        # This one says the line and the column.
        decoded(body)
        raise MalformedBody(str(error)) from None
    except messages.UnknownField as error:
        raise UnknownField(str(error), field=error.path or None) from None
    except messages.WireError as error:
        raise Invalid(str(error), field=error.path or None) from None


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
