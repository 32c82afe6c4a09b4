"""Native endpoints are described in OpenAPI, as they are served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from twisted.internet.testing import MemoryReactorClock

from api.roles import GROUPS, Role
from api.server import (
    batches,
    dictionaries,
    documents,
    events,
    expression_sets,
    images,
    imports,
    lease,
)
from api.server.app import Server
from api.server.described import OPERATIONS
from api.server.http import Route
from api.server.native import Native
from api.server.operations import Operation
from loadtest.rig.stack import Stack
from tagmill.config import load
from tagmill.fleet import incarnation
from tagmill_wire import frames
from tests.server.test_serve import call, token_of, worker
from tests.server.test_workers import fleet, partition

__all__ = ["fleet"]

PLACES = {
    "dictionary": "7",
    "image": "newest",
    **{"uuid": "0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11", "partition": "7"},
    "version": "0" * 32,
}
# The role that each takes; workers alone may call the others.
ROLES = [
    (imports.IMPORT.operation, "uploader"),
    (imports.UPDATE.operation, "uploader"),
    (imports.DELETE.operation, "operator"),
    (documents.OPERATION, "uploader"),
    (events.REBUILDS.operation, "viewer"),
    (events.PREVIEWS.operation, "operator"),
]
# What those get who may: there is no body.
REACHED = {
    **dict.fromkeys((kind.operation.name for kind in imports.KINDS), 415),
    "nodes_document_update": 400,
}


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda place: PLACES.get(place[1], "x"), path)


def route_for(routes: Iterable[Route], path: str) -> tuple[Route, tuple[bytes, ...]]:
    for route in routes:
        if found := route.pattern.fullmatch(path.encode()):
            return route, found.groups()
    raise AssertionError(f"no native route for {path}")


@pytest.fixture(scope="module")
def schema() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)


@pytest.fixture(scope="module")
def routes() -> list[Route]:
    return Server(MemoryReactorClock(), load(), run_maintenance=False).routes


def test_every_native_route_is_described(schema: Any, routes: list[Route]) -> None:
    paths = [filled(path).encode() for path in schema["paths"]]
    for route in routes:
        assert any(route.pattern.fullmatch(path) for path in paths), route.pattern


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_what_is_described_is_served(
    schema: Any, routes: list[Route], operation: Operation
) -> None:
    route, groups = route_for(routes, filled(operation.path))
    made: Any = route.make(*groups)
    assert isinstance(made, Native)
    methods = {other.method.upper() for other in OPERATIONS if other.path == operation.path}
    assert {*made.methods} - {"HEAD"} == methods
    described = schema["paths"][operation.path]
    assert described[operation.method]["operationId"] == operation.name
    assert route_for(routes, f"{filled(operation.path)}/")[0] is route


def test_every_reference_has_its_schema(schema: Any) -> None:
    known = schema["components"]["schemas"].keys()
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(schema)))
    assert named <= known
    assert {"Completion", "LeaseAnswer", "Batch", "PartitionResult", "Problem"} <= named


def test_the_bounds_of_a_lease_request_are_described(schema: Any) -> None:
    text = schema["paths"][lease.OPERATION.path]["post"]["description"]
    assert str(lease.MAX_HOLDS) in text and str(lease.MAX_PARTITIONS) in text


def test_native_endpoints_take_those_whom_their_description_names(stack: Stack) -> None:
    bearer, _ = worker(stack)
    people = {role: token_of(role) for role in ("viewer", "uploader", "operator", "admin")}

    def ask(operation: Operation, header: str = "") -> tuple[int, str | None]:
        headers = {"Authorization": header} if header else {}
        method, path = operation.method.upper(), filled(operation.path)
        response, _ = call(stack, method, path, **headers)
        return response.status, response.headers["WWW-Authenticate"]

    for operation, needed in ROLES:
        assert ask(operation) == ask(operation, bearer) == (401, "Token")
        for role, header in people.items():
            is_allowed = Role[needed.upper()] in GROUPS[role]
            status, _ = ask(operation, header)
            # There is no such thing, or no body: who may not do it does not get so far.
            reached = REACHED.get(operation.name, 404)
            assert status == (reached if is_allowed else 403)
    for operation in (
        lease.OPERATION,
        batches.OPERATION,
        expression_sets.OPERATION,
        dictionaries.OPERATION,
        images.GET,
        images.PUT,
    ):
        assert ask(operation) == ask(operation, people["admin"]) == (401, "Worker")
    open_to_all = {item.name for item in OPERATIONS if not item.schemes}
    assert open_to_all == {"healthz", "readyz", "metrics"}


def test_an_answer_has_the_headers_that_are_described(fleet: Stack) -> None:
    header, _ = worker(fleet)
    path = batches.OPERATION.path.replace("{partition}", str(partition("north")))
    path += f"?incarnation={incarnation.current()}"
    headers = {"Authorization": header, "Accept_Encoding": "zstd"}
    page, _ = call(fleet, "GET", path, **headers)
    described = batches.OPERATION.answers
    # It is the last page, and JSON.
    missing = {"Tagmill-Next", frames.DICTIONARIES}
    assert described[200].headers.keys() - page.headers.keys() == missing
    same, _ = call(fleet, "GET", path, If_None_Match=page.headers["ETag"], **headers)
    assert same.status == 304
    assert described[304].headers.keys() <= {*same.headers.keys()}
