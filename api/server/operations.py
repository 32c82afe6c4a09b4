"""How a native endpoint is described in OpenAPI: beside it, since no view of Django's is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api import codes
from api.openapi import CONDITION_HEADERS, EVERYWHERE, HEADERS, PROBLEM, describe_headers, reference
from api.openapi import PLACES as SHOWN
from tagmill_wire.messages import Message

JSON = "application/json"
USERS = ("bearer", "userToken")
# A browser's session, too.
BROWSERS = (*USERS, "cookieAuth")
WORKERS = ("workerToken",)

Schema = Mapping[str, Any]

# What the places of a path may be, and how OpenAPI says it.
PLACES: dict[str, tuple[str, Schema]] = {
    "partition": (r"(\d{1,18})", {"type": "integer", "minimum": 0}),
    "system_id": ("([^/]+)", {"type": "string"}),
    "version": ("([0-9a-f]{32})", {"type": "string", "pattern": "^[0-9a-f]{32}$"}),
    "image": ("([0-9A-Za-z._-]{1,200})", {"type": "string"}),
    "dictionary": (r"(\d{1,19})", {"type": "integer", "minimum": 0}),
    "uuid": ("([0-9a-fA-F-]{36})", {"type": "string", "format": "uuid"}),
}


PLACE_NAMES = {
    "image": "An image's name.",
    "dictionary": "A dictionary's id.",
    "partition": "A partition's id.",
    "version": "An expression set's version.",
}
BINARY: Schema = {"type": "string", "format": "binary"}


@dataclass(frozen=True)
class Content:
    """`others`: more media types of the same."""

    media_type: str
    schema: Schema
    example: Any = None
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: type[Message]) -> Content:
        return cls(JSON, reference(kind))

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = {"schema": dict(self.schema)}
        if self.example is not None:
            found["example"] = self.example
        return dict.fromkeys((self.media_type, *self.others), found)


@dataclass(frozen=True)
class Answer:
    """`headers`: what each says."""

    description: str
    content: Content | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = {"description": self.description}
        if self.headers:
            found["headers"] = {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in self.headers.items()
            }
        if self.content is not None:
            found["content"] = self.content.described()
        return found


@dataclass(frozen=True)
class Parameter:
    name: str
    description: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    place: str = "query"
    is_required: bool = False

    def described(self) -> dict[str, Any]:
        return {
            "in": self.place,
            "name": self.name,
            "description": self.description,
            "required": self.is_required,
            "schema": dict(self.schema),
        }


@dataclass(frozen=True)
class Operation:
    """`path` has its places in braces. `schemes`: who it takes; nobody has to say who they are
    where it is empty. `errors`: the codes that it fails with, beyond those that any may."""

    name: str
    method: str
    path: str
    tag: str
    schemes: tuple[str, ...]
    summary: str
    description: str
    answers: Mapping[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    request: Content | None = None
    errors: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """What the path matches, with a slash at its end or without; its places are groups."""
        literals = re.split(r"\{(\w+)\}", self.path)
        parts = [PLACES[text][0] if n % 2 else re.escape(text) for n, text in enumerate(literals)]
        return re.compile("".join(parts).encode() + b"/?")

    def described(self) -> dict[str, Any]:
        problem = Content(PROBLEM, {"$ref": "#/components/schemas/Problem"})
        answers = {str(status): answer.described() for status, answer in self.answers.items()}
        answers = {**codes.responses(self._codes()), **answers}
        answers["default"] = Answer("A problem: `code` says which", problem).described()
        for status, answer in answers.items():
            describe_headers(status, answer)
        places = (
            Parameter(name, *_place(name), "path", is_required=True)
            for name in re.findall(r"\{(\w+)\}", self.path)
        )
        found: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.summary,
            "description": self.description,
            "parameters": [item.described() for item in (*places, *self.parameters)],
            "tags": [self.tag],
            "security": [{scheme: []} for scheme in self.schemes],
            "responses": answers,
        }
        if self.request is not None:
            found["requestBody"] = {"content": self.request.described(), "required": True}
        return found

    def _codes(self) -> set[str]:
        """What it can fail with."""
        found = {*EVERYWHERE, *self.errors}
        if self.schemes:
            found |= {"unauthorized", "forbidden"}
        if self.request is not None:
            found |= {"too_large", "unsupported_media_type", "condition_not_supported"}
        if "{" in self.path:
            found.add("not_found")
        if "If-Match" in {item.name for item in self.parameters}:
            found.add("precondition_failed")
        return found


def _place(name: str) -> tuple[str, Schema]:
    """What a place of the path is, and its schema."""
    shown = SHOWN.get(name, {})
    return shown.get("description", PLACE_NAMES.get(name, "")), shown.get("schema", PLACES[name][1])


CONDITIONS = tuple(
    Parameter(name, text, place="header") for name, text in CONDITION_HEADERS.items()
)
PREFER = Parameter("Prefer", "`wait=N`: the answer may be up to N seconds late.", place="header")
APPLIED = {"Preference-Applied": HEADERS["Preference-Applied"]}
