"""What clients of the last release rely on is still there, as docs/api.md says under Versions."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from tests.support.released import Comparison

RELEASED = Path(__file__).resolve().parents[2] / "docs/openapi-released.json"


@pytest.fixture(scope="module")
def released() -> Any:
    return json.loads(RELEASED.read_text())


def test_nothing_breaks_clients_of_the_last_release(released: Any) -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    now = json.loads(json.dumps(schema, default=str))
    assert [*Comparison(released, now).breaks()] == []


TAGS = ("paths", "/api/v1/tags/")
FIELDS = ("components", "schemas", "TagFieldsRequest")
SHOWN = ("components", "schemas", "TagOut")


def at(schema: Any, *place: str) -> Any:
    for name in place:
        schema = schema[name]
    return schema


def parameter(schema: Any, name: str) -> Any:
    found = at(schema, *TAGS, "get", "parameters")
    return next(each for each in found if each["name"] == name)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an address is gone": lambda s: s["paths"].pop("/api/v1/nodes/"),
    "a method is gone": lambda s: at(s, *TAGS).pop("post"),
    "an operation has another name": lambda s: at(s, *TAGS, "get").update(operationId="other"),
    "a parameter is gone": lambda s: at(s, *TAGS, "get", "parameters").remove(
        parameter(s, "prefix")
    ),
    "a parameter is required": lambda s: parameter(s, "prefix").update(required=True),
    "a bound is lower": lambda s: parameter(s, "limit")["schema"].update(maximum=10),
    "a bound is higher": lambda s: parameter(s, "limit")["schema"].update(minimum=2),
    "a choice is gone": lambda s: parameter(s, "state")["schema"]["enum"].pop(),
    "a field is required": lambda s: at(s, *FIELDS)["required"].append("comment"),
    "a field is not taken": lambda s: at(s, *FIELDS, "properties").pop("comment"),
    "a pattern is another": lambda s: at(s, *FIELDS, "properties", "name").update(pattern="^a$"),
    "a field is not shown": lambda s: at(s, *SHOWN, "properties").pop("comment"),
    "a field is not always shown": lambda s: at(s, *SHOWN)["required"].remove("comment"),
    "a field is null": lambda s: at(s, *SHOWN, "properties", "comment").update(
        type=["string", "null"]
    ),
    "a type is another": lambda s: at(s, *SHOWN, "properties", "node_count").update(type="string"),
    "an answer is gone": lambda s: at(s, *TAGS, "post", "responses").pop("201"),
    "a header is gone": lambda s: at(s, *TAGS, "post", "responses", "201", "headers").pop("ETag"),
    "a media type is gone": lambda s: at(
        s, "paths", "/api/v1/tags/{name}/nodes", "get", "responses", "200", "content"
    ).pop("application/x-ndjson"),
    "a scheme is gone": lambda s: at(s, *TAGS, "get", "security").pop(0),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_break_is_found(released: Any, what: str) -> None:
    changed = copy.deepcopy(released)
    CHANGES[what](changed)
    assert [*Comparison(released, changed).breaks()]


def test_what_is_added_breaks_nobody(released: Any) -> None:
    changed = copy.deepcopy(released)
    changed["paths"]["/api/v1/new"] = changed["paths"]["/api/v1/tags/"]
    parameter(changed, "limit")["schema"]["maximum"] = 5000
    parameter(changed, "state")["schema"]["enum"].append("new")
    at(changed, *TAGS, "get", "parameters").append({"in": "query", "name": "new", "schema": {}})
    at(changed, *FIELDS, "properties")["new"] = {"type": "string"}
    at(changed, *SHOWN, "properties")["new"] = {"type": "string"}
    at(changed, *SHOWN, "properties", "comment")["description"] = "another"
    assert [*Comparison(released, changed).breaks()] == []
    # Where clients send a field, it may be of more types; where they read one, of fewer.
    at(changed, *FIELDS, "properties", "comment")["type"] = ["string", "null"]
    assert [*Comparison(released, changed).breaks()] == []
