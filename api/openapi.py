"""What drf-spectacular cannot find out by itself: filters, conditions, headers, what an operation
fails with, and who it takes.

A method's docstring is written for readers of the API: its first paragraph is the summary, the rest
the description.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema_serializer,
)
from rest_framework import serializers
from rest_framework.permissions import AllowAny

from api import codes
from tagmill_wire.messages import Message

Direction = Literal["request", "response"]
PROBLEM = codes.MEDIA_TYPE


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "An expression that does not parse",
            value={
                "type": "/api/problems/invalid_definition",
                "title": "Bad Request",
                "status": 400,
                "code": "invalid_definition",
                "detail": "expected an expression, found ']' at column 9",
                "column": 9,
                "caret": "//node[@]\n        ^ expected a name, found ']'",
            },
            response_only=True,
        )
    ]
)
class Problem(serializers.Serializer[Any]):
    """RFC 9457, with a machine-readable `code`. Some codes carry more members: `field`, `line`,
    `column`, `caret`, `limit`, `errors`, `request_id`."""

    type = serializers.CharField(help_text="The page about the `code`.")
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField(help_text="For people: what is wrong, and what to do.")
    field = serializers.CharField(required=False)
    line = serializers.IntegerField(required=False)
    column = serializers.IntegerField(required=False)
    caret = serializers.CharField(
        required=False, help_text="The definition's line, and a caret below the column."
    )
    limit = serializers.IntegerField(required=False)
    request_id = serializers.CharField(required=False)


CONDITION_HEADERS = {
    name: f"{what} Else 412 `precondition_failed`."
    for name, what in (
        ("If-Match", "The `ETag` of the answer that the change is meant for."),
        ("If-None-Match", "`*`: only where there is none yet."),
    )
}
CONDITIONS = [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, description=what)
    for name, what in CONDITION_HEADERS.items()
]
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]{1,255}$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same key within a day, the request is answered as the first"
    " time, and nothing is done twice.",
)
# What headers of answers say.
HEADERS: Mapping[str, str] = {
    "X-Request-Id": "The id of this request, as sent or made here; the log and the audit have it.",
    "Location": "The address of what was made.",
    "ETag": "Names this state, for `If-Match` and `If-None-Match`.",
    "Link": '`<url>; rel="next"`: the next page; missing on the last.',
    "Retry-After": "Seconds to wait before asking again.",
    "Preference-Applied": "`wait=N`, the seconds that were granted.",
    "WWW-Authenticate": "The scheme to send a token with.",
    "Tagmill-Settled": "Whether the node's tags are true; missing where nothing was stored.",
    "RateLimit-Policy": "How many are allowed in how many seconds.",
    "RateLimit": "How many are left, and the seconds until there are more.",
}
# What stands in paths.
PLACES: Mapping[str, Mapping[str, Any]] = {
    "name": {
        "description": "A tag's name.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,256}$"},
    },
    "system_id": {
        "description": "A node's system_id.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,64}$"},
    },
    "cluster": {
        "description": "A cluster's uuid, or its name.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 256},
    },
    "uuid": {"description": "Its uuid.", "schema": {"type": "string", "format": "uuid"}},
    "username": {
        "description": "A user's name.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 150},
    },
    "key": {
        "description": "A token's first characters, as `key` in the list.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 25},
    },
    "lookup": {
        "description": "A worker token's part between the underscores.",
        "schema": {"type": "string", "minLength": 1},
    },
}
NUMBERS = frozenset({"Retry-After"})
# The database takes no text that has it.
NO_NUL = r"^[^\u0000]*$"
# Any operation may fail so.
EVERYWHERE = ("unknown_field", "internal", "database_unavailable", "database_busy")


@dataclass(frozen=True)
class Says:
    """What is to be said of one method beyond what its view tells: with which codes it fails, which
    headers its answers have, and by which operation what it makes is read: (operation, {parameter:
    expression})."""

    errors: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    links: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)


def headers(*names: str) -> dict[str, Any]:
    return {
        name: {
            "description": HEADERS[name],
            "schema": {"type": "integer" if name in NUMBERS else "string"},
        }
        for name in names
    }


def describe_headers(status: str, response: dict[str, Any], *more: str) -> None:
    """Add the headers that every answer with this status has, and those of a success."""
    names = ["X-Request-Id"]
    if status.startswith("2") or status == "304":
        names += more
    if status in {"202", "429", "503"}:
        names.append("Retry-After")
    if status == "401":
        names.append("WWW-Authenticate")
    found = {**headers(*names), **response.get("headers", {})}
    response["headers"] = dict(sorted(found.items()))


class Schema(AutoSchema):
    @property
    def says(self) -> Says:
        found: Says = getattr(self.view, "says", {}).get(self.method, Says())
        return found

    @property
    def is_conditional(self) -> bool:
        return self.method in getattr(self.view, "conditional", ())

    def get_override_parameters(self) -> list[Any]:
        lists = getattr(self.view, "lists", None)
        found = [each.parameter() for each in lists(self.method)] if lists else []
        found += CONDITIONS if self.is_conditional else []
        found += [IDEMPOTENCY] if self.keeps_answers else []
        return found

    @property
    def keeps_answers(self) -> bool:
        return self.method == "POST" and getattr(self.view, "keeps_answers", False)

    def get_summary(self) -> str:
        return self._written()[0]

    def get_description(self) -> str:  # type: ignore[override]  # the stubs know DRF's own alone
        return self._written()[1]

    def _written(self) -> tuple[str, str]:
        """The summary and the description. What a class says of itself is for whoever writes a
        view."""
        method = getattr(self.view, self.method.lower(), None)
        summary, _, rest = inspect.cleandoc(method.__doc__ or "").partition("\n\n")
        return " ".join(summary.split()), rest

    def _resolve_path_parameters(self, variables: list[str]) -> list[dict[str, Any]]:
        found = [
            {"in": "path", "name": name, "required": True, **PLACES[name]} for name in variables
        ]
        return sorted(found, key=lambda item: str(item["name"]))

    def _get_request_body(self, direction: Direction = "request") -> Any:
        untyped: Any = super()
        found = untyped._get_request_body(direction)
        return found and {**found, "required": self._needs_body()}

    def _needs_body(self) -> bool:
        """Whether there is something that must be sent: no body is one without fields. Messages of
        the worker protocol are not of DRF, and always sent."""
        untyped: Any = self
        given = untyped.get_request_serializer()
        body = given() if inspect.isclass(given) else given
        if not isinstance(body, serializers.Serializer):
            return True
        needed = [each for each in body.fields.values() if each.required]
        return self.method != "PATCH" and bool(needed or getattr(body, "alternatives", None))

    def _get_format_parameters(self) -> list[Any]:
        """`?format=` is refused: `Accept` says it."""
        return []

    def _codes(self) -> set[str]:
        """What the operation can fail with."""
        view: Any = self.view
        untyped: Any = self
        found = {*EVERYWHERE, *self.says.errors}
        takes_anybody = any(isinstance(each, AllowAny) for each in view.get_permissions())
        if not takes_anybody:
            found |= {"unauthorized", "forbidden"}
        if self.method != "GET" and not takes_anybody and view.get_authenticators()[1:]:
            found.add("csrf_failed")
        if "{" in self.path:
            found.add("not_found")
        if self.method != "GET":
            found.add("precondition_failed" if self.is_conditional else "condition_not_supported")
        if untyped._get_request_body():
            found |= {"invalid", "malformed_body", "too_large", "unsupported_media_type"}
        if getattr(view, "parameters", ()):
            found.add("invalid")
        if self.keeps_answers:
            found |= {"invalid", "conflict", "key_reused"}
        if view.lists(self.method) if hasattr(view, "lists") else False:
            found.add("invalid")
        if getattr(view, "throttle_classes", ()):
            found |= {"throttled", "cache_unavailable"}
        return found

    def _get_response_bodies(self, direction: Direction = "response") -> Any:
        """Every operation's own problems, and by default any."""
        bodies = super()._get_response_bodies(direction)
        problem = OpenApiResponse(Problem, "A problem: `code` says which")
        untyped: Any = self
        for status, response in codes.responses(self._codes()).items():
            bodies.setdefault(status, response)
        bodies["default"] = untyped._get_response_for_code(problem, "default", [PROBLEM], direction)
        is_list = bool(getattr(self.view, "has_pages", False)) and self.method == "GET"
        more = (*self.says.headers, *(["Link"] if is_list else []))
        for status, response in bodies.items():
            describe_headers(status, response, *more)
            response["description"] = response["description"] or "It was done."
            if status.startswith("2") and self.says.links:
                response["links"] = {
                    name: {"operationId": operation, "parameters": dict(given)}
                    for name, (operation, given) in self.says.links.items()
                }
        return bodies


class ClosedBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # their metaclass
    """A body that is sent has the fields that are described, and no other, or those of one of its
    `alternatives`."""

    target_class = "api.rest.base.Strict"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> Any:
        untyped: Any = auto_schema
        found = untyped._map_serializer(self.target, direction, bypass_extensions=True)
        alternatives = getattr(self.target, "alternatives", {})
        kind = self.target if inspect.isclass(self.target) else type(self.target)
        if not kind.__dict__.get("__doc__"):
            # What a base class says of itself is for whoever writes one.
            found.pop("description", None)
        if direction == "request":
            fields = found["properties"]
            found["properties"] = {name: _text(field) for name, field in fields.items()}
        if not alternatives:
            return {**found, "additionalProperties": False}
        return {"oneOf": [_one_of(name, each, found) for name, each in alternatives.items()]}


def _text(field: Mapping[str, Any]) -> dict[str, Any]:
    """No text has the character NUL, and no item of a list is empty: so says what reads them."""
    found = dict(field)
    types = found.get("type", ())
    if "string" in (types if isinstance(types, list) else (types,)) and "enum" not in found:
        found.setdefault("pattern", NO_NUL)
    if "items" in found:
        items = _text(found["items"])
        found["items"] = {"minLength": 1, **items} if items.get("type") == "string" else items
    if isinstance(values := found.get("additionalProperties"), dict):
        found["additionalProperties"] = _text(values)
    return found


def _one_of(name: str, alternative: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """An object of its own, as generators want it: the fields that the alternative names, with what
    it says of them."""
    fields = whole["properties"]
    # A value that is given has no other by default.
    given = {key for key, more in alternative.items() if "const" in more}
    fields = {
        key: {name: what for name, what in field.items() if key not in given or name != "default"}
        for key, field in fields.items()
    }
    return {
        "title": name,
        "type": "object",
        "properties": {key: {**fields[key], **more} for key, more in alternative.items()},
        "required": list(alternative),
        "additionalProperties": False,
    }


def reference(kind: type[Message]) -> dict[str, str]:
    """The schema of a message of the worker protocol, which api/server/described.py adds."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


class UserTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # their metaclass
    target_class = "api.authentication.UserTokenAuthentication"
    name = ["bearer", "userToken"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        """Either of them."""
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, str]]:
        issued = "from `manage.py create_token` or `/api/v1/auth/token`"
        return [
            {
                "type": "http",
                "scheme": "bearer",
                "description": f"`Authorization: Bearer <token>`, {issued}",
            },
            {
                "type": "apiKey",
                "in": "header",
                "name": "Authorization",
                "description": f"`Authorization: Token <token>`, the same, {issued}",
            },
        ]


class WorkerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # their metaclass
    target_class = "api.authentication.WorkerTokenAuthentication"
    name = "workerToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Worker tmw_<lookup>_<secret>`, from `manage.py worker_token`",
        }
