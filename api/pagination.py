"""Keyset pages: `?limit=&after=`. Rows made or deleted meanwhile neither repeat nor hide others."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson
from django.http import QueryDict
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from tagmill.errors import Invalid

DEFAULT_LIMIT = 100
# Bounds one answer; a client that wants more asks for the next page. A view may allow more
# (`max_limit`).
MAX_LIMIT = 1000
# Columns of text that views page by; the others are numbers.
TEXT_KEYS = frozenset({"name", "digest"})


class KeysetPagination(BasePagination):
    """Pages in the order of the view's `keyset`: a unique column, `-` before it for descending."""

    request: Request
    next: str | None = None

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        keyset: str = getattr(view, "keyset", "id")
        column = keyset.lstrip("-")
        limit = limit_of(request.query_params, getattr(view, "max_limit", MAX_LIMIT))
        if after := request.query_params.get("after"):
            operator = "lt" if keyset.startswith("-") else "gt"
            kind = str if column in TEXT_KEYS else int
            queryset = queryset.filter(**{f"{column}__{operator}": decode(after, kind)})
        rows = list(queryset.order_by(keyset)[: limit + 1])
        if len(rows) > limit:
            rows.pop()
            cursor = encode(getattr(rows[-1], column))
            self.next = replace_query_param(request.build_absolute_uri(), "after", cursor)
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.next})

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
                    "description": "The next page; null on the last.",
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
