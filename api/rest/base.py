"""What the resources share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from api import idempotency, pagination, rights
from api.idempotency import Replay
from api.limits import RETRY_SECONDS, SMALL, BodyLimit
from api.models import IdempotentRequest
from api.openapi import Says, Schema
from api.packing import GZIP
from api.pagination import KeysetPagination
from api.permissions import needed_by
from api.problems import Forbidden
from api.rest import filters
from api.rest.filters import Filter
from api.rights import Scope
from api.roles import Role
from api.strict import refuse_conditions, refuse_encoding, refuse_unknown
from tagmill.errors import Invalid, NotFound


class Strict(serializers.Serializer[Any]):
    """Refuses fields that it does not know, and those that are only read; and values that are not
    of their JSON type: a number is no text, a text no number, and neither is true or false.
    `alternatives`: where a body has some of the fields or others, the fields of each by its name,
    with what is said of them."""

    alternatives: ClassVar[dict[str, dict[str, dict[str, Any]]]] = {}

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            fields = {str(field.field_name): field for field in self._writable_fields}
            refuse_unknown(data, fields, "field")
            wrong = {name: mistyped(fields[name], value) for name, value in data.items()}
            if any(wrong.values()):
                raise serializers.ValidationError(
                    {name: errors for name, errors in wrong.items() if errors}
                )
        return super().to_internal_value(data)


# The JSON type that each kind of field takes, and how to call it. A boolean is an int in Python.
JSON_TYPES: tuple[
    tuple[type[serializers.Field[Any, Any, Any, Any]], tuple[type, ...], str], ...
] = (
    (serializers.ListField, (list,), "a list"),
    (serializers.DictField, (dict,), "an object"),
    (serializers.BooleanField, (bool,), "true or false"),
    (serializers.IntegerField, (int,), "a whole number"),
    (serializers.FloatField, (int, float), "a number"),
    (serializers.ChoiceField, (str,), "a string"),
    (serializers.CharField, (str,), "a string"),
)


def mistyped(field: Any, value: Any) -> Any:
    """What is wrong with the JSON type of the value, in the shape of DRF's errors; nothing where it
    is right. Null is the field's own to judge, and so is an object that is another serializer's."""
    if value is None or isinstance(field, Strict):
        return None
    for kind, types, name in JSON_TYPES:
        if isinstance(field, kind):
            if kind is serializers.IntegerField and isinstance(value, float):
                # JSON has one kind of numbers: 1.0 is a whole one.
                return None if value.is_integer() else [f"must be {name}"]
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                return [f"must be {name}"]
            child = getattr(field, "child", None)
            wrong = {key: mistyped(child, item) for key, item in _items(value)}
            return {key: errors for key, errors in wrong.items() if errors} or None
    raise TypeError(f"{type(field).__name__} is no kind of field that bodies may have")


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, list):
        return enumerate(value)
    return value.items() if isinstance(value, dict) else ()


class Name(serializers.CharField):
    """Text for people: one line, at least one character."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 256, **options})


class Resource(GenericAPIView[Any]):
    """`roles`: the role a method takes, where it is not viewer for reading and operator for the
    rest. `by_cluster`: the role in some clusters is enough, and every method keeps to
    what is `granted`.
    `parameters`: the query parameters known, beside those of pages. `body_limit`: of what is
    sent to it. `conditional`: the methods that check If-Match and If-None-Match; elsewhere they are
    refused. `keeps_answers`: POST takes an Idempotency-Key; not where the answer has a secret.
    `says`: what OpenAPI says of a method beyond its docstring. Of a list, `filters` are what GET
    may be asked for, and `orders` the column that pages go by for each `order`; without any it is
    `keyset`."""

    roles: ClassVar[dict[str, Role]] = {}
    by_cluster: ClassVar[bool] = False
    body_limit: ClassVar[BodyLimit] = SMALL
    parameters: ClassVar[frozenset[str]] = frozenset()
    conditional: ClassVar[frozenset[str]] = frozenset()
    filters: ClassVar[tuple[Filter, ...]] = ()
    orders: ClassVar[dict[str, str]] = {}
    keyset: ClassVar[str] = "id"
    max_limit: ClassVar[int] = pagination.MAX_LIMIT
    pagination_class = KeysetPagination
    schema = Schema()
    has_pages: ClassVar[bool] = False
    keeps_answers: ClassVar[bool] = True
    _kept: IdempotentRequest | None = None
    says: ClassVar[dict[str, Says]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if not hasattr(self, str(request.method).lower()):
            # Whatever else is wrong with it.
            self.http_method_not_allowed(request)
        understood = request.method in self.conditional
        refuse_conditions(str(request.method), request.headers, understood=understood)
        refuse_encoding(request.headers.get("Content-Encoding"), GZIP)
        refuse_unknown(request.query_params, self.known_parameters(request.method), "parameter")

        if request.method == "POST":
            self._begin(request)

    def _begin(self, request: Request) -> None:
        """Raises Replay where the answer is there already."""
        if self.keeps_answers:
            self._kept = idempotency.begin(request)
        elif idempotency.HEADER in request.headers:
            raise Invalid(
                "the answer has a secret, or is none to keep: send this without an Idempotency-Key",
                field=idempotency.HEADER,
            )

    def handle_exception(self, exc: Exception) -> Any:
        return exc.response if isinstance(exc, Replay) else super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        if self._kept is not None:
            idempotency.end(self._kept, answer)
        if answer.status_code == HTTPStatus.ACCEPTED:
            answer.setdefault("Retry-After", str(RETRY_SECONDS))
        for name, value in getattr(request, "rate_limits", {}).items():
            answer[name] = value
        return answer

    @classmethod
    def lists(cls, method: str | None) -> tuple[Filter, ...]:
        """What may be asked of the list that the method answers with."""
        if not cls.has_pages or method not in {"GET", "HEAD"}:
            return ()
        order = (filters.order(*cls.orders),) if cls.orders else ()
        return (*cls.filters, *order, filters.COUNT)

    @classmethod
    def known_parameters(cls, method: str | None) -> set[str]:
        pages = {"limit", "after"} if cls.has_pages else set()
        return {*cls.parameters, *pages, *(each.name for each in cls.lists(method))}

    @cached_property
    def granted(self) -> Scope:
        """The clusters that the request may read or change."""
        needed = needed_by(self, self.request.method)
        found = rights.find(self.request.user, needed)
        if found is None or not (found.clusters is None or self.by_cluster):
            raise Forbidden(rights.refusal(needed))
        return found

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What is asked of the list, by name. Raises Invalid."""
        return filters.asked(self.lists(self.request.method), self.request.query_params.dict())

    def filtered(self, queryset: Any) -> Any:
        """The rows that the filters leave."""
        return filters.filtered(self.filters, self.asked, queryset)

    @property
    def order(self) -> str:
        """The column that the pages go by, `-` before it for descending."""
        return self.orders[self.asked["order"]] if "order" in self.asked else self.keyset

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """What may be sent is in the OpenAPI description; which methods there are, in `Allow`."""
        return Response(status=204)

    def given(self, kind: type[Strict], *, is_partial: bool = False) -> dict[str, Any]:
        """The body's fields. Raises ValidationError and UnknownField."""
        serializer = kind(data=self.request.data, partial=is_partial)
        serializer.is_valid(raise_exception=True)
        fields: dict[str, Any] = serializer.validated_data
        return fields

    def page(self, queryset: Any, bodies: Callable[[list[Any]], Iterable[Any]]) -> Response:
        """One page of the rows that the filters leave; `bodies` turns all of them into their
        bodies."""
        found = self.filtered(queryset)
        page = pagination.page(found, self.request.query_params, self.order)
        return self.listed(list(bodies(page.rows)), page.after, found.count)

    def keyed_page(
        self,
        rows: Callable[[int, int], Sequence[Any]],
        bodies: Callable[[Sequence[Any]], Iterable[Any]],
        count: Callable[[], int],
    ) -> Response:
        """The same of rows with a number as their `key`: `rows(after, limit)` are those above."""
        parameters = self.request.query_params
        limit = pagination.limit_of(parameters, self.max_limit)
        cursor, begin = parameters.get("after"), self.asked.get("begin", -1)
        if cursor and "begin" in self.asked:
            raise Invalid("a page begins at a place or after a cursor, not both", field="begin")
        found = rows(pagination.decode(cursor, int) if cursor else begin, limit + 1)
        after = pagination.encode(found[limit - 1].key) if len(found) > limit else None
        return self.listed(list(bodies(found[:limit])), after, count)

    def listed(self, results: list[Any], after: str | None, count: Callable[[], int]) -> Response:
        """The answer of a list. `after`: the cursor of the next page, None on the last."""
        body: dict[str, Any] = {"results": results, "next": None}
        headers = {}
        if after is not None:
            address = remove_query_param(self.request.build_absolute_uri(), "begin")
            body["next"] = replace_query_param(address, "after", after)
            headers["Link"] = f'<{body["next"]}>; rel="next"'
        if self.asked.get("count"):
            body["count"] = count()
        return Response(body, headers=headers)


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
