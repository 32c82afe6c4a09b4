"""/api/v1/tags/"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tagmill.config import load
from tests.support.fleet import BARE
from tests.support.http import problem

GPU = {"name": "gpu", "definition": '//node[@class="display"]'}
TAGS = "/api/v1/tags/"


def post(client: APIClient, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/{path}", body, format="json")


def names(answer: Any) -> list[str]:
    return [row["system_id"] for row in answer.json()["results"]]


def test_a_new_tag_is_building_until_its_definition_is_evaluated(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a", "b")
    put("c", xml=BARE)
    made = post(operator, "tags/", {**GPU, "comment": "any GPU", "kernel_opts": "nomodeset"})
    assert made.status_code == 201
    assert made["Location"].endswith("/api/v1/tags/gpu")
    tag = made.json()
    assert (tag["state"], tag["kind"], tag["definition"]) == ("building", "automatic", None)
    assert tag["pending_definition"] == GPU["definition"]
    assert tag["freshness"] == {"partitions": 1, "pending": 1, "evaluated_at": None}
    assert evaluate() == 1
    tag = operator.get(f"{TAGS}gpu").json()
    assert (tag["state"], tag["node_count"]) == ("ready", 2)
    assert (tag["definition"], tag["pending_definition"]) == (GPU["definition"], None)
    assert tag["freshness"]["pending"] == 0
    assert tag["freshness"]["evaluated_at"]
    assert (tag["comment"], tag["kernel_opts"]) == ("any GPU", "nomodeset")
    assert names(operator.get(f"{TAGS}gpu/nodes")) == ["a", "b"]


def test_a_changed_definition_leaves_the_old_nodes_until_it_is_evaluated(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    put("c", xml=BARE)
    post(operator, "tags/", GPU)
    evaluate()
    changed = operator.patch(f"{TAGS}gpu", {"definition": "//node"}, format="json").json()
    assert (changed["definition"], changed["pending_definition"]) == (GPU["definition"], "//node")
    assert names(operator.get(f"{TAGS}gpu/nodes")) == ["a"]
    evaluate()
    assert names(operator.get(f"{TAGS}gpu/nodes")) == ["a", "c"]


@pytest.mark.parametrize("definition", ["//node[", "//node[@a=]", "foo(", "$x", "nope(1)"])
def test_a_definition_that_does_not_parse_names_the_column(
    operator: APIClient, definition: str
) -> None:
    answer = post(operator, "tags/", {"name": "bad", "definition": definition})
    assert problem(answer, 400, "invalid_definition")["column"] >= 1
    assert operator.get(f"{TAGS}bad").status_code == 404


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 257, "a\n"])
def test_a_name_must_be_letters_digits_dashes_and_underscores(
    operator: APIClient, name: str
) -> None:
    answer = post(operator, "tags/", {"name": name})
    assert problem(answer, 400, "invalid")["field"] == "name"


def test_a_definition_over_the_limit_is_too_large(operator: APIClient) -> None:
    definition = "//node | " * load().definition_bytes
    answer = post(operator, "tags/", {"name": "long", "definition": definition})
    assert problem(answer, 413, "too_large")["limit"] == load().definition_bytes


def test_a_name_that_is_taken_is_a_conflict(operator: APIClient) -> None:
    assert post(operator, "tags/", {"name": "a"}).status_code == 201
    problem(post(operator, "tags/", {"name": "a"}), 409, "already_exists")


@pytest.mark.parametrize("name", ["lint", "explain", "preview"])
def test_no_name_of_a_tag_is_taken_by_an_address(operator: APIClient, name: str) -> None:
    assert post(operator, "tags/", {"name": name}).status_code == 201
    assert operator.get(f"{TAGS}{name}").json()["name"] == name
    allowed = operator.options(f"{TAGS}{name}")["Allow"].split(", ")
    assert set(allowed) == {"GET", "PATCH", "DELETE", "HEAD", "OPTIONS"}


def test_a_deleted_tag_is_gone(operator: APIClient) -> None:
    post(operator, "tags/", GPU)
    assert operator.delete(f"{TAGS}gpu").status_code == 204
    problem(operator.get(f"{TAGS}gpu"), 404, "not_found")
    problem(operator.delete(f"{TAGS}gpu"), 404, "not_found")


def test_the_list_asks_the_database_as_often_for_many_tags_as_for_one(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    with CaptureQueriesContext(
        connection,
    ) as for_one:
        assert len(operator.get(TAGS).json()["results"]) == 1
    for number in range(20):
        post(operator, "tags/", {"name": f"t{number}", "definition": f"//node[{number + 1}]"})
        post(operator, "tags/", {"name": f"m{number}"})
    with CaptureQueriesContext(connection) as for_many:
        assert len(operator.get(TAGS).json()["results"]) == 41
    assert len(for_many) == len(for_one)


def test_a_manual_tag_is_assigned_by_hand(operator: APIClient, put: Callable[..., None]) -> None:
    put("a", "b")
    assert post(operator, "tags/", {"name": "mine"}).json()["kind"] == "manual"
    answer = post(operator, "tags/mine/assign", {"add": ["a", "b", "nobody"]})
    assert answer.json() == {"added": 2, "removed": 0, "unknown": ["nobody"]}
    assert post(operator, "tags/mine/assign", {"remove": ["b"]}).json()["removed"] == 1
    assert names(operator.get(f"{TAGS}mine/nodes")) == ["a"]
    assert operator.get("/api/v1/nodes/a/tags").json() == {"tags": ["mine"]}
    assert operator.get(f"{TAGS}mine").json()["node_count"] == 1


def test_an_automatic_tag_is_not_assigned_by_hand(operator: APIClient) -> None:
    post(operator, "tags/", GPU)
    problem(post(operator, "tags/gpu/assign", {"add": []}), 409, "automatic_tag")


def test_a_manual_tag_has_nothing_to_rebuild(operator: APIClient) -> None:
    post(operator, "tags/", {"name": "mine"})
    problem(post(operator, "tags/mine/rebuild"), 409, "manual_tag")


def test_more_nodes_than_one_assignment_takes_are_refused(operator: APIClient) -> None:
    post(operator, "tags/", {"name": "mine"})
    answer = post(operator, "tags/mine/assign", {"add": ["x"] * 10_001})
    assert problem(answer, 400, "invalid")["field"] == "add"


def test_membership_that_has_not_changed_is_304(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a", "b")
    post(operator, "tags/", {"name": "mine"})
    post(operator, "tags/mine/assign", {"add": ["a"]})
    first = operator.get(f"{TAGS}mine/nodes")
    same = operator.get(f"{TAGS}mine/nodes", HTTP_IF_NONE_MATCH=first["ETag"])
    assert (same.status_code, same.content, same["ETag"]) == (304, b"", first["ETag"])
    post(operator, "tags/mine/assign", {"add": ["b"]})
    changed = operator.get(f"{TAGS}mine/nodes", HTTP_IF_NONE_MATCH=first["ETag"])
    assert changed.status_code == 200
    assert names(changed) == ["a", "b"]


def test_a_deleted_node_leaves_its_tags_and_their_etag(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a", "b")
    post(operator, "tags/", GPU)
    evaluate()
    first = operator.get(f"{TAGS}gpu/nodes")
    assert operator.delete("/api/v1/nodes/a").status_code == 204
    after = operator.get(f"{TAGS}gpu/nodes", HTTP_IF_NONE_MATCH=first["ETag"])
    assert names(after) == ["b"]
    assert operator.get(f"{TAGS}gpu").json()["node_count"] == 1


def test_tags_come_in_pages_by_name(operator: APIClient) -> None:
    for name in "dbca":
        post(operator, "tags/", {"name": name})
    page = operator.get(TAGS, {"limit": 3}).json()
    assert [tag["name"] for tag in page["results"]] == ["a", "b", "c"]
    page = operator.get(page["next"]).json()
    assert [tag["name"] for tag in page["results"]] == ["d"]
    assert page["next"] is None
