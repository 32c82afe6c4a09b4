"""What drf-spectacular cannot find out by itself: problem documents and the kinds of tokens."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema_serializer,
)
from rest_framework import serializers

from tagmill_wire.messages import Message

Direction = Literal["request", "response"]
PROBLEM = "application/problem+json"


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "An expression that does not parse",
            value={
                "type": "about:blank",
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

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
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


class Schema(AutoSchema):
    def get_override_parameters(self) -> list[Any]:
        return CONDITIONS if self.method in getattr(self.view, "conditional", ()) else []

    def get_description(self) -> str:  # type: ignore[override]  # the stubs know DRF's own alone
        """What a base class says of itself is for whoever writes a view."""
        found: str = super().get_description()
        bases = type(self.view).__mro__[1:]
        return "" if found in {inspect.cleandoc(kind.__doc__ or "") for kind in bases} else found

    def _get_response_bodies(self, direction: Direction = "response") -> Any:
        """Every operation can fail; with which codes, docs/api.md says."""
        bodies = super()._get_response_bodies(direction)
        problem = OpenApiResponse(Problem, "A problem: `code` says which")
        untyped: Any = self
        bodies["default"] = untyped._get_response_for_code(problem, "default", [PROBLEM], direction)
        return bodies


def reference(kind: type[Message]) -> dict[str, str]:
    """The schema of a message of the worker protocol, which api/server/described.py adds."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


class UserTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # their metaclass
    target_class = "api.authentication.UserTokenAuthentication"
    name = "userToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Token <token>`, from `manage.py create_token` or `/api/v1/auth/token`",
        }


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
