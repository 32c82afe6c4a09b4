"""Every error is a problem document with a code."""

from __future__ import annotations

import orjson
import psycopg
import pytest
import structlog
from django.db import OperationalError
from django.test import RequestFactory
from rest_framework.test import APIClient

from api import handlers, limits, problems
from tagmill.errors import Busy, ConfigurationError
from tests.support.http import problem


def test_an_address_that_does_not_exist_is_not_found(viewer: APIClient) -> None:
    assert "/api/docs/" in problem(viewer.get("/api/v1/nonsense"), 404, "not_found")["detail"]


def test_a_row_that_does_not_exist_is_not_found(viewer: APIClient) -> None:
    assert "'x'" in problem(viewer.get("/api/v1/tags/x"), 404, "not_found")["detail"]


def test_a_name_with_a_nul_is_not_found(viewer: APIClient) -> None:
    problem(viewer.get("/api/v1/tags/a%00b"), 404, "not_found")


def test_a_method_that_does_not_exist_names_those_that_do(operator: APIClient) -> None:
    answer = operator.put("/api/v1/tags/x", {}, format="json")
    problem(answer, 405, "method_not_allowed")
    assert "PATCH" in answer["Allow"]


def test_a_type_that_is_not_offered_is_not_acceptable(viewer: APIClient) -> None:
    answer = viewer.get("/api/v1/tags/", HTTP_ACCEPT="text/csv")
    problem(answer, 406, "not_acceptable")


def test_a_type_that_is_not_read_is_refused(operator: APIClient) -> None:
    answer = operator.post("/api/v1/tags/", "name=x", content_type="text/plain")
    problem(answer, 415, "unsupported_media_type")


def test_malformed_json_has_a_line_and_a_column(operator: APIClient) -> None:
    answer = operator.post("/api/v1/tags/", b'{"name":\n  oops}', content_type="application/json")
    found = problem(answer, 400, "malformed_body")
    assert (found["line"], found["column"]) == (2, 3)


@pytest.mark.parametrize("body", [b"[]", b"3", b'"x"', b"null", b""])
def test_a_body_that_is_no_object_is_refused(operator: APIClient, body: bytes) -> None:
    answer = operator.post("/api/v1/tags/", body, content_type="application/json")
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"


def test_a_body_over_the_limit_is_too_large(operator: APIClient) -> None:
    limit = limits.DEFINITION.size
    body = b'{"name": "' + b"x" * limit + b'"}'
    answer = operator.post("/api/v1/tags/", body, content_type="application/json")
    assert problem(answer, 413, "too_large")["limit"] == limit


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("tags/", {"name": "a", "kernel_opt": "quiet"}),
        ("tags/", {"name": "a", "state": "ready"}),
        ("nodes/", {"system_id": "a", "host": "b"}),
        ("rebuilds/", {"tag": ["a"]}),
        ("tags/a/assign", {"nodes": ["a"]}),
    ],
)
def test_an_unknown_field_is_named(operator: APIClient, path: str, body: dict[str, object]) -> None:
    found = problem(operator.post(f"/api/v1/{path}", body, format="json"), 400, "unknown_field")
    assert found["field"] == list(body)[-1]


def test_an_unknown_parameter_is_named(viewer: APIClient) -> None:
    found = problem(viewer.get("/api/v1/nodes/?tags=gpu"), 400, "unknown_field")
    assert found["field"] == "tags"


def test_a_missing_field_is_named(operator: APIClient) -> None:
    found = problem(operator.post("/api/v1/tags/", {}, format="json"), 400, "invalid")
    assert found["field"] == "name"
    assert found["errors"][0]["field"] == "name"


@pytest.mark.parametrize(
    "limit", ["0", "1001", "-1", "x", "\u0661", "", "0000000019999999", "9" * 4400, "1_0"]
)
def test_a_page_size_out_of_bounds_is_refused(viewer: APIClient, limit: str) -> None:
    answer = viewer.get("/api/v1/nodes/", {"limit": limit})
    assert problem(answer, 400, "invalid")["field"] == "limit"


@pytest.mark.parametrize("after", ["x", "bnVsbA", "InRleHQi", "A" * 5000, "é"])
def test_a_cursor_that_was_not_handed_out_is_refused(viewer: APIClient, after: str) -> None:
    answer = viewer.get("/api/v1/nodes/", {"after": after})
    assert problem(answer, 400, "invalid")["field"] == "after"


def test_a_database_that_is_down_is_503_with_retry_after() -> None:
    answer = handlers.respond(OperationalError("server closed the connection"))
    assert b"server closed" not in answer.content
    found = orjson.loads(answer.content)
    assert found["code"] == "database_unavailable"
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0


def test_an_unexpected_error_tells_an_id_and_nothing_else() -> None:
    with structlog.testing.capture_logs() as logged:
        try:
            raise KeyError("the secret")
        except KeyError:
            answer = handlers.server_error(RequestFactory().get("/api/v1/tags/"))
    assert answer.status_code == 500
    assert b"secret" not in answer.content
    found = orjson.loads(answer.content)
    assert found["code"] == "internal"
    assert found["request_id"] == logged[-1]["request_id"]


def test_the_eleventh_guess_of_a_password_has_to_wait(anonymous: APIClient) -> None:
    wrong = {"username": "root", "password": "guess"}
    for _ in range(10):
        problem(anonymous.post("/api/v1/auth/token", wrong, format="json"), 401, "unauthorized")
    answer = anonymous.post("/api/v1/auth/token", wrong, format="json")
    assert problem(answer, 429, "throttled")["retry_after"] == int(answer["Retry-After"])


def test_a_full_disk_is_said_to_be_one() -> None:
    full = OperationalError("could not extend file")
    full.__cause__ = psycopg.errors.DiskFull("could not extend file")
    answer = handlers.respond(full)
    assert answer.status_code == 503
    assert "disk is full" in orjson.loads(answer.content)["detail"]


def test_native_answers_and_djangos_are_of_one_tree() -> None:
    busy = Busy("others come first", retry_after=3)
    answer = handlers.respond(busy)
    assert answer.content == problems.document(busy)
    assert dict(answer.items()) == problems.headers(busy)
    assert answer["Retry-After"] == "3"
    # What is not meant for clients stays in the log, whichever way it comes.
    with structlog.testing.capture_logs() as logged:
        found = problems.shown(ConfigurationError("the key is 1234"))
    assert logged[0]["request_id"] == found.extra["request_id"]
    assert (found.status, found.code) == (500, "internal") and "1234" not in found.detail
