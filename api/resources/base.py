"""What the resources share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from api import etags, pagination
from api.limits import SMALL, BodyLimit
from api.openapi import Schema
from api.pagination import KeysetPagination
from api.problems import UnknownField
from api.roles import Role
from tagmill.errors import NotFound


class Strict(serializers.Serializer[Any]):
    """Refuses fields that it does not know, and those that are only read."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_unknown(
                data, [str(field.field_name) for field in self._writable_fields], "field"
            )
        return super().to_internal_value(data)


class Name(serializers.CharField):
    """Text for people: one line, at least one character."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 256, **options})


class Resource(GenericAPIView[Any]):
    """`roles`: the role a method takes, where it is not viewer for reading and operator for the
    rest. `parameters`: the query parameters known, beside those of pages. `body_limit`: of what is
    sent to it. `conditional`: the methods that check If-Match and If-None-Match; elsewhere they are
    refused."""

    roles: ClassVar[dict[str, Role]] = {}
    body_limit: ClassVar[BodyLimit] = SMALL
    parameters: ClassVar[frozenset[str]] = frozenset()
    conditional: ClassVar[frozenset[str]] = frozenset()
    keyset: ClassVar[str] = "id"
    pagination_class = KeysetPagination
    schema = Schema()
    has_pages: ClassVar[bool] = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        etags.refuse_conditions(request, request.method in self.conditional)
        pages = {"limit", "after"} if self.has_pages else set()
        refuse_unknown(request.query_params, self.parameters | pages, "parameter")

    def given(self, kind: type[Strict], *, is_partial: bool = False) -> dict[str, Any]:
        """The body's fields. Raises ValidationError and UnknownField."""
        serializer = kind(data=self.request.data, partial=is_partial)
        serializer.is_valid(raise_exception=True)
        fields: dict[str, Any] = serializer.validated_data
        return fields

    def page(self, queryset: Any, bodies: Callable[[list[Any]], Iterable[Any]]) -> Response:
        """One page of the rows; `bodies` turns all of them into their bodies."""
        rows = self.paginate_queryset(queryset) or []
        return self.get_paginated_response(list(bodies(list(rows))))

    def keyed_page(
        self, rows: Callable[[int, int], list[Any]], bodies: Callable[[list[Any]], Iterable[Any]]
    ) -> Response:
        """The same of rows with a number as their `key`: `rows(after, limit)` are those above."""
        parameters = self.request.query_params
        limit = pagination.limit_of(parameters)
        cursor = parameters.get("after")
        found = rows(pagination.decode(cursor, int) if cursor else -1, limit + 1)
        following = None
        if len(found) > limit:
            after = pagination.encode(found[limit - 1].key)
            address = self.request.build_absolute_uri()
            following = replace_query_param(address, "after", after)
        return Response({"results": list(bodies(found[:limit])), "next": following})


def refuse_unknown(given: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raises UnknownField."""
    allowed = sorted(known)
    for name in given:
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise UnknownField(f"unknown {kind} {name!r}; known: {names}", field=name)


def is_current(request: Request, etag: str) -> bool:
    """Whether If-None-Match names the entity tag (quoted)."""
    given = parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in given or etag.removeprefix("W/") in {tag.removeprefix("W/") for tag in given}


def with_etag(request: Request, etag: str, make: Callable[[], HttpResponse]) -> HttpResponse:
    """304 when the client has it already, and no more than the tag is computed then."""
    answer = HttpResponseNotModified() if is_current(request, etag) else make()
    answer["ETag"] = etag
    answer["Cache-Control"] = "private, no-cache"
    answer["Vary"] = "Authorization, Cookie"
    return answer


def one(queryset: Any, kind: str, **key: Any) -> Any:
    """The row. Raises NotFound."""
    (value,) = key.values()
    found = None if "\0" in str(value) else queryset.filter(**key).first()
    if found is None:
        raise NotFound(f"there is no {kind} {value!r}")
    return found
