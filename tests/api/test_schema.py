"""The OpenAPI description is the whole truth: it is held against what runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from rest_framework.test import APIClient

import api.urls
from api import codes, problems
from api.server.described import OPERATIONS
from tagmill.errors import ConfigurationError, TagmillError
from tests.support.http import problem

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def schema() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)


def operations(schema: Any) -> Iterator[tuple[str, str, Any]]:
    for path, found in schema["paths"].items():
        for method in METHODS:
            if method in found:
                yield method, path, found[method]


def views() -> dict[str, Any]:
    """The views of Django's addresses, by the paths that OpenAPI has for them."""
    return {
        "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern)): pattern.callback.cls
        for pattern in api.urls.V1
    }


def test_it_describes_every_address_and_method_that_is_served_and_no_other(schema: Any) -> None:
    served = {
        (method, path)
        for path, view in views().items()
        for method in METHODS
        if hasattr(view, method)
    }
    native = {(operation.method, operation.path) for operation in OPERATIONS}
    described = {(method, path) for method, path, _ in operations(schema)}
    assert not served & native
    assert described == served | native


def test_it_is_clean(schema: Any) -> None:
    plain = json.loads(json.dumps(schema, default=str))
    assert [str(error) for error in OpenAPIV31SpecValidator(plain).iter_errors()] == []


def schemas_in(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        yield found
        found = list(found.values())
    for each in found if isinstance(found, list) else ():
        yield from schemas_in(each)


def test_null_is_one_of_what_it_may_be_and_no_two(schema: Any) -> None:
    """An answer of null would break the description that allows it twice."""
    plain = json.loads(json.dumps(schema, default=str))
    alternatives = [
        each["oneOf"] for each in schemas_in(plain) if {"type": "null"} in each.get("oneOf", ())
    ]
    assert alternatives
    for found in alternatives:
        others = [{**plain, **each} for each in found if each != {"type": "null"}]
        assert not any(Draft202012Validator(each).is_valid(None) for each in others), found


def test_a_body_must_be_sent_where_a_field_of_it_must(schema: Any) -> None:
    needed = {
        operation["operationId"]: operation["requestBody"]["required"]
        for _, _, operation in operations(schema)
        if "application/json" in operation.get("requestBody", {}).get("content", ())
    }
    assert needed["tags_create"] and needed["rebuilds_create"] and needed["worker_tokens_create"]
    assert needed["workers_heartbeat"] and needed["workers_lease"]
    assert not needed["tags_partial_update"] and not needed["cache_flush"]
    assert not needed["nodes_replace"]


def test_every_operation_is_written_for_readers(schema: Any) -> None:
    seen = set()
    for method, path, operation in operations(schema):
        summary = operation["summary"]
        assert 5 <= len(summary) <= 60 and not summary.endswith("."), (method, path, summary)
        assert operation["operationId"] not in seen
        seen.add(operation["operationId"])
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description") or parameter["name"] == "limit", (path, parameter)
            assert parameter["name"] != "format"
        for status, answer in operation["responses"].items():
            assert answer["description"], (method, path, status)
            assert "X-Request-Id" in answer["headers"], (method, path, status)


def test_it_names_the_query_parameters_that_are_taken_and_no_other(schema: Any) -> None:
    for path, view in views().items():
        for method in METHODS:
            if hasattr(view, method):
                said = {
                    parameter["name"]
                    for parameter in schema["paths"][path][method].get("parameters", ())
                    if parameter["in"] == "query"
                }
                taken = {*view.known_parameters(method.upper())}
                # Some are of one method alone, and passed over by the others of the address.
                assert said <= taken, (method, path)
                assert said == taken or method != "get", (method, path)


def test_a_body_that_is_sent_has_no_other_fields(schema: Any) -> None:
    seen = 0
    for method, path, operation in operations(schema):
        content = operation.get("requestBody", {}).get("content", {})
        for kind, media in content.items():
            if kind == "application/json":
                name = media["schema"]["$ref"].rpartition("/")[2]
                body = schema["components"]["schemas"][name]
                for each in body.get("oneOf", [body]):
                    assert each["additionalProperties"] is False, name
                seen += 1
            else:
                assert media["schema"] == {"type": "string", "format": "binary"}, (method, path)
    assert seen > 20


def test_bodies_have_the_constraints_that_the_server_enforces(schema: Any) -> None:
    bodies = schema["components"]["schemas"]
    some, every = bodies["RebuildInRequest"]["oneOf"]
    assert (some["required"], some["properties"]["tags"]["minItems"]) == (["tags"], 1)
    assert (every["required"], every["properties"]["all"]["const"]) == (["all"], True)
    assert len(bodies["WorkerTokenInRequest"]["oneOf"]) == 2
    name = bodies["TagFieldsRequest"]["properties"]["name"]
    assert name["pattern"] == "^[A-Za-z0-9_-]{1,256}$"
    item = bodies["AssignmentRequest"]["properties"]["add"]["items"]
    assert (item["minLength"], re.search(item["pattern"], "a\0b")) == (1, None)
    assert re.search(item["pattern"], "a b\n")


def test_every_link_leads_to_an_operation(schema: Any) -> None:
    known = {operation["operationId"]: operation for _, _, operation in operations(schema)}
    links = [
        link
        for _, _, operation in operations(schema)
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) > 8
    for link in links:
        taken = {parameter["name"] for parameter in known[link["operationId"]]["parameters"]}
        assert link["parameters"].keys() <= taken


def kinds(of: type[TagmillError] = TagmillError) -> Iterator[type[TagmillError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_error_has_its_code_in_the_table() -> None:
    for kind in kinds():
        if kind in {ConfigurationError, problems.Refused} or kind.__module__.startswith("tests"):
            continue
        assert codes.CODES[kind.code].status == kind.status, kind


def test_the_docs_have_the_table_of_codes() -> None:
    text = (ROOT / "docs/api.md").read_text()
    assert codes.table() in text


def test_the_type_of_a_problem_is_a_page(db: None) -> None:
    client = APIClient()
    found = problem(client.get("/api/v1/tags/"), 401, "unauthorized")
    page = client.get(found["type"])
    assert page.status_code == 200 and b"<code>unauthorized</code>" in page.content
    assert client.get("/api/problems/").status_code == 200
    assert client.get("/api/problems/nothing").status_code == 404


def test_the_root_leads_everywhere(viewer: APIClient) -> None:
    found = viewer.get("/api/v1/").json()
    assert {"tags", "nodes", "rebuilds"} <= found["lists"].keys()
    assert viewer.get(found["lists"]["tags"]).status_code == 200
    problem(APIClient().get("/api/v1/"), 401, "unauthorized")
