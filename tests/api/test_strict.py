"""What a request asks for is understood or refused; answers have one form."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from rest_framework.test import APIClient

from tagmill.flows import imports
from tagmill.tags import tags
from tests.support.http import problem

DATES = re.compile(rb'"(\d{4}-\d\d-\d\dT[^"]*)"')


@pytest.mark.parametrize("path", ["tags/", "clusters/", "previews/", "nodes/"])
def test_what_is_not_gzip_is_not_unpacked(admin: APIClient, path: str) -> None:
    body = gzip.compress(b'{"name": "x"}')
    answer = admin.post(
        f"/api/v1/{path}", body, content_type="application/json", headers={"Content-Encoding": "x"}
    )
    problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("nodes/", "a"),
        ("nodes/", True),
        ("nodes/", 1.5),
        ("nodes/", None),
        ("tags/", 5),
        ("tags/", "a\0b"),
        ("clusters/", ["a"]),
        ("tags/by-hand/nodes", "a"),
    ],
)
def test_a_cursor_that_no_page_has_given_is_refused(
    operator: APIClient, path: str, key: object
) -> None:
    tags.create("by-hand")
    cursor = base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")
    found = problem(operator.get(f"/api/v1/{path}?after={cursor}"), 400, "invalid")
    assert found["field"] == "after"
    assert problem(operator.get(f"/api/v1/{path}?after=%25"), 400, "invalid")["field"] == "after"


@pytest.mark.parametrize("path", ["nodes/", "audit/", "tags/by-hand/nodes"])
@pytest.mark.parametrize("key", [-1, 2**63, 2**64 - 1])
def test_a_cursor_beyond_any_key_has_a_page(admin: APIClient, path: str, key: int) -> None:
    tags.create("by-hand")
    cursor = base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")
    assert admin.get(f"/api/v1/{path}?after={cursor}").status_code in (200, 400)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_node_has_no_name_that_addresses_drop(
    operator: APIClient, cluster: Any, name: str
) -> None:
    answer = operator.post("/api/v1/nodes/", {"system_id": name}, format="json")
    assert problem(answer, 400, "invalid")["field"] == "system_id"
    line = orjson.dumps({"system_id": name, "probes": {"lshw": "<list/>"}})
    assert [verdict["outcome"] for verdict in imports.import_lines([line])] == ["refused"]


def test_a_node_named_import_is_like_others(operator: APIClient, cluster: Any) -> None:
    body = {"system_id": "import", "probes": {"lshw": "<list/>"}}
    made = operator.post("/api/v1/nodes/", body, format="json")
    place = made["Location"]
    assert operator.get(place).json()["system_id"] == "import"
    changed = operator.patch(place, {"hostname": "h"}, format="json")
    assert changed.json()["hostname"] == "h"
    assert operator.get(f"{place}/document").content == b"<list/>"
    assert operator.delete(place).status_code == 204
    problem(operator.get(place), 404, "not_found")


def test_every_date_of_every_answer_ends_in_z(
    admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    admin.post("/api/v1/tags/", {"name": "gpu", "definition": "//node"}, format="json")
    evaluate()
    made = admin.post("/api/v1/previews", {"definition": "//node"}, format="json")
    explained = admin.post(
        "/api/v1/definitions/explain", {"definition": "//node", "node": "a"}, format="json"
    )
    answers = [made, explained]
    for path in (
        "clusters/", "nodes/", "nodes/a", "tags/", "tags/gpu", "tags/gpu/explain?node=a",
        "rebuilds/", "workers/", "users/", "user-tokens/", "worker-tokens/",
        f"previews/{made.json()['uuid']}",
    ):  # fmt: skip
        answers.append(admin.get(f"/api/v1/{path}"))
    found = [DATES.findall(answer.content) for answer in answers]
    assert all(date.endswith(b"Z") for dates in found for date in dates)
    assert sum(bool(dates) for dates in found) > len(answers) - 2


def test_a_method_that_there_is_not_is_refused_before_anything_else(admin: APIClient) -> None:
    answer = admin.generic("TRACE", "/api/v1/audit/?nothing=1")
    problem(answer, 405, "method_not_allowed")
