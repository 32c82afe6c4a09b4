"""What Django's views accept: JSON and workers' messages, both bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import orjson
from rest_framework.parsers import BaseParser

from api.limits import SMALL, BodyLimit
from api.packing import unpacked
from api.problems import MalformedBody
from tagmill.errors import TooLarge


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raises MalformedBody and TooLarge."""
        limit = _limit(parser_context)
        request = (parser_context or {}).get("request")
        coding = None if request is None else request.headers.get("Content-Encoding")
        return decoded(unpacked(read_bounded(stream, limit), coding, limit))


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


def decoded(body: bytes) -> Any:
    """The value of a body of JSON. Raises MalformedBody."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(
            f"the body is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from None


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
