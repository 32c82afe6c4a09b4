"""Keyset pages: `?limit=&after=`. Rows made or deleted meanwhile neither repeat nor hide others."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

import orjson
from django.http import QueryDict
from rest_framework.pagination import BasePagination
from rest_framework.views import APIView

from tagmill.errors import Invalid

DEFAULT_LIMIT = 100
# Bounds one answer; a client that wants more asks for the next page. A view may allow more
# (`max_limit`).
MAX_LIMIT = 1000
# Columns of text that views page by; the others are numbers.
TEXT_KEYS = frozenset({"name", "digest", "username"})


class Page(NamedTuple):
    """`after`: the cursor of the next page; None on the last."""

    rows: list[Any]
    after: str | None


def page(queryset: Any, parameters: QueryDict, keyset: str) -> Page:
    """The rows of one page. `keyset`: a unique column, `-` before it for descending. Rows are model
    instances or have the column as a member. Raises Invalid."""
    column = keyset.lstrip("-")
    limit = limit_of(parameters)
    if after := parameters.get("after"):
        operator = "lt" if keyset.startswith("-") else "gt"
        kind = str if column in TEXT_KEYS else int
        queryset = queryset.filter(**{f"{column}__{operator}": decode(after, kind)})
    rows = list(queryset.order_by(keyset)[: limit + 1])
    if len(rows) <= limit:
        return Page(rows, None)
    rows.pop()
    last = rows[-1]
    key = last[column] if isinstance(last, dict) else getattr(last, column)
    return Page(rows, encode(key))


def beyond(rows: list[Any], parameters: QueryDict, keyset: str) -> list[Any]:
    """As `page`, of rows that are there already, in order: those after the cursor. Raises
    Invalid."""
    after = parameters.get("after")
    if not after:
        return rows
    column = keyset.lstrip("-")
    key = decode(after, str if column in TEXT_KEYS else int)
    if keyset.startswith("-"):
        return [row for row in rows if getattr(row, column) < key]
    return [row for row in rows if getattr(row, column) > key]


class KeysetPagination(BasePagination):
    """Says in OpenAPI what pages are. They are made by `Resource.page`."""

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {
                    "type": "string",
                    "format": "uri",
                    "nullable": True,
                    "description": "The next page; null on the last. Also as a `Link` header.",
                },
                "count": {
                    "type": "integer",
                    "description": "How many there are on all pages, where `count=true` asks.",
                },
            },
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        return [
            {
                "name": "limit",
                "in": "query",
                "required": False,
                "schema": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": getattr(view, "max_limit", MAX_LIMIT),
                    "default": DEFAULT_LIMIT,
                },
            },
            {
                "name": "after",
                "in": "query",
                "required": False,
                "description": "The cursor of `next`, as it is.",
                "schema": {"type": "string"},
            },
        ]


def limit_of(parameters: QueryDict, most: int = MAX_LIMIT) -> int:
    """Raises Invalid."""
    text = parameters.get("limit", str(DEFAULT_LIMIT))
    is_short = len(text) <= len(str(most))
    if not (is_short and text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise Invalid(f"limit must be a number from 1 to {most}", field="limit")
    return int(text)


def encode(key: int | str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")


def decode(cursor: str, kind: type[int] | type[str]) -> Any:
    """Raises Invalid."""
    try:
        key = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        key = None
    if type(key) is not kind or (isinstance(key, str) and "\0" in key):
        raise Invalid("after must be taken from the `next` of the page before", field="after")
    return key
