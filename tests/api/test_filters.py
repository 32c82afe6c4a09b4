"""What lists may be asked for: filters, orders, counts, and the tags of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

import api.urls
from api.rest.base import Resource
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tests.support.fleet import BARE, HAS_GPU
from tests.support.http import problem


def names(client: APIClient, path: str, member: str) -> list[Any]:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    return [row[member] for row in answer.json()["results"]]


@pytest.fixture
def fleet(admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]) -> APIClient:
    """Two clusters, three machines and a switch; tags of every state and kind."""
    put("a1", "a2")
    put("b1", xml=BARE)
    for body in (
        {"name": "gpu", "definition": HAS_GPU, "comment": "any display"},
        {"name": "none", "definition": "//node[@class='NONE']"},
        {"name": "by-hand"},
    ):
        assert admin.post("/api/v1/tags/", body, format="json").status_code == 201
    evaluate()
    # Nobody evaluates there.
    admin.post("/api/v1/clusters/", {"name": "south"}, format="json")
    ingest.store([Upload("sw1", "south", "Switch-1", "switch", {"lshw": BARE})])
    admin.post("/api/v1/tags/by-hand/assign", {"add": ["a2", "sw1"]}, format="json")
    return admin


def test_nodes_come_in_the_order_of_their_names(fleet: APIClient) -> None:
    ingest.store([Upload("a0", "south")])
    ingest.delete("a2")
    every = ["a0", "a1", "b1", "sw1"]
    assert names(fleet, "nodes/", "system_id") == ["a1", "b1", "sw1", "a0"]
    for sign, expected in (("", every), ("-", every[::-1])):
        path: str | None = f"/api/v1/nodes/?order={sign}system_id&limit=1&count=true"
        seen = []
        while path:
            page = fleet.get(path).json()
            assert page["count"] == 4
            seen += [row["system_id"] for row in page["results"]]
            path = page["next"]
        assert seen == expected
    assert names(fleet, "nodes/?order=-system_id&cluster=south", "system_id") == ["sw1", "a0"]
    assert names(fleet, "nodes/?order=system_id&not_tag=gpu&q=s", "system_id") == ["sw1"]
    assert names(fleet, "tags/by-hand/nodes?order=-system_id", "system_id") == ["sw1"]
    problem(fleet.get("/api/v1/nodes/?order=system_id&begin=1.1"), 400, "invalid")
    by_place = fleet.get("/api/v1/nodes/?limit=1").json()["next"]
    problem(fleet.get(f"{by_place}&order=system_id"), 400, "invalid")
    problem(fleet.get("/api/v1/nodes/?order=hostname"), 400, "invalid")


TAGS: tuple[tuple[Any, ...], ...] = (
    ("kind=manual", ["by-hand"]),
    ("kind=automatic&order=-name", ["none", "gpu"]),
    ("prefix=g", ["gpu"]),
    ("definition=DISPLAY", ["gpu"]),
    ("q=display", ["gpu"]),
    ("q=HAND", ["by-hand"]),
    ("order=created_at", ["gpu", "none", "by-hand"]),
    ("state=failed", []),
    ("definition=%25", []),
)


def test_tags(fleet: APIClient) -> None:
    for query, expected in TAGS:
        assert names(fleet, f"tags/?{query}", "name") == expected, query


def test_tags_by_state_over_pages(fleet: APIClient) -> None:
    """South has no worker: what is evaluated there waits."""
    assert names(fleet, "tags/?state=building", "name") == ["gpu", "none"]
    assert names(fleet, "tags/?state=ready", "name") == ["by-hand"]
    page = fleet.get("/api/v1/tags/?state=building&limit=1&order=-name&count=true")
    body = page.json()
    assert ([row["name"] for row in body["results"]], body["count"]) == (["none"], 2)
    assert page["Link"] == f'<{body["next"]}>; rel="next"'
    following = fleet.get(body["next"])
    assert [row["name"] for row in following.json()["results"]] == ["gpu"]
    assert "Link" not in following


NODES: tuple[tuple[Any, ...], ...] = (
    ("kind=switch", ["sw1"]),
    ("hostname=host-a1", ["a1"]),
    ("hostname_prefix=HOST-A", ["a1", "a2"]),
    ("hostname_prefix=a1", []),
    ("q=sw", ["sw1"]),
    ("text=witch", ["sw1"]),
    ("text=-A", ["a1", "a2"]),
    ("text=%25", []),
    ("cluster=south", ["sw1"]),
    ("tag=by-hand&kind=machine", ["a2"]),
    ("tag=by-hand&not_tag=gpu", ["sw1"]),
    ("q=a&hostname_prefix=host-a1", ["a1"]),
)


def test_nodes(fleet: APIClient) -> None:
    for query, expected in NODES:
        assert names(fleet, f"nodes/?{query}", "system_id") == expected, query
        page = fleet.get(f"/api/v1/nodes/?{query}&count=true&limit=1").json()
        assert page["count"] == len(expected), query


def test_deleted_nodes_are_not_counted(fleet: APIClient) -> None:
    assert fleet.delete("/api/v1/nodes/a1").status_code == 204
    assert fleet.get("/api/v1/nodes/?count=true").json()["count"] == 3
    assert fleet.get("/api/v1/nodes/?tag=gpu&count=true").json()["count"] == 1


def test_nodes_come_with_their_tags_where_they_are_asked_for(fleet: APIClient) -> None:
    listed = fleet.get("/api/v1/nodes/?include=tags").json()["results"]
    found = {row["system_id"]: row["tags"] for row in listed}
    assert found == {"a1": ["gpu"], "a2": ["by-hand", "gpu"], "b1": [], "sw1": ["by-hand"]}
    for name, tags in found.items():
        assert fleet.get(f"/api/v1/nodes/{name}").json()["tags"] == tags
        assert fleet.get(f"/api/v1/nodes/{name}/tags").json() == {"tags": tags}
    assert "tags" not in fleet.get("/api/v1/nodes/").json()["results"][0]


def test_the_tags_of_a_page_cost_one_query(fleet: APIClient) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as asked:
            assert fleet.get(path).status_code == 200
        return len(asked)

    assert queries("/api/v1/nodes/?include=tags") == queries("/api/v1/nodes/") + 1


OTHERS: tuple[tuple[Any, ...], ...] = (
    ("tags/gpu/nodes?q=a1", "system_id", ["a1"]),
    ("clusters/?prefix=SO", "name", ["south"]),
    ("clusters/?order=-name", "name", ["south", "north"]),
    ("partitions/?cluster=south", "cluster", ["south"]),
    ("partitions/?stale=true", "cluster", ["south"]),
    ("partitions/?stale=false&order=-id", "cluster", ["north"]),
    ("workers/?alive=true&cluster=north&prefix=W", "name", ["w1"]),
    ("workers/?cluster=south", "name", []),
    ("workers/?alive=false", "name", []),
    ("users/?role=admin", "name", ["the-admin"]),
    ("users/?prefix=THE&role=viewer", "name", []),
    ("users/?is_active=false", "name", []),
    ("user-tokens/?user=the-admin&expired=false&is_login=false", "user", ["the-admin"]),
    ("user-tokens/?expired=true", "user", []),
    ("worker-tokens/?prefix=RA&cluster=north&revoked=false", "name", ["rack"]),
    ("worker-tokens/?cluster=south", "name", []),
    ("audit/?kind=tag&name=gpu&action=created&order=at", "name", ["gpu"]),
    ("audit/?until=2001-01-01T00:00:00Z", "name", []),
    ("tags/by-hand/history?action=assigned", "action", ["assigned"]),
    ("tags/gpu/changes?since=2001-01-01T00:00:00Z&order=at", "added_count", [2]),
    ("tags/gpu/changes?until=2001-01-01T00:00:00Z", "added_count", []),
    ("rebuilds/?tag=gpu&reason=created&requested_by=the-admin", "tags", [["gpu"]]),
    ("rebuilds/?state=complete&order=requested_at", "tags", [["gpu"], ["none"]]),
    ("rebuilds/?state=failed", "tags", []),
    ("rebuilds/?until=2001-01-01T00:00:00Z", "tags", []),
)


def test_other_lists(fleet: APIClient) -> None:
    for path, member, expected in OTHERS:
        assert names(fleet, path, member) == expected, path
        assert fleet.get(f"/api/v1/{path}&count=true").json()["count"] == len(expected), path


def test_what_a_filter_does_not_take_is_refused(fleet: APIClient) -> None:
    """Every filter of every list, by what it declares."""
    seen = 0
    for pattern in api.urls.V1:
        view: Any = getattr(pattern.callback, "cls", None)
        if view is None or not issubclass(view, Resource) or not view.has_pages:
            continue
        place = str(pattern.pattern).replace("<str:name>", "gpu")
        if "<" in place:
            continue
        for each in view.lists("GET"):
            wrong = "neither" * 100
            answer = fleet.get(f"/api/v1/{place}", {each.name: wrong})
            assert problem(answer, 400, "invalid")["field"] == each.name
            seen += 1
        problem(fleet.get(f"/api/v1/{place}?nothing=1"), 400, "unknown_field")
    assert seen > 50


def test_filters_are_of_lists_alone(fleet: APIClient) -> None:
    answer = fleet.post("/api/v1/tags/?prefix=g", {"name": "x"}, format="json")
    problem(answer, 400, "unknown_field")


@pytest.mark.parametrize("query", ["since", "until"])
def test_a_time_may_be_of_any_zone_and_must_be_one(admin: APIClient, query: str) -> None:
    for place in ("rebuilds", "audit"):
        for known in ("0429-02-11T07:51:31%2B17:21", "9998-01-01T00:00:00-23:59"):
            assert admin.get(f"/api/v1/{place}/?{query}={known}").status_code == 200, known
        for wrong in ("0001-01-01T00:00:00%2B01:00", "9999-12-31T23:59:59-01:00", "2026-02-30"):
            answer = admin.get(f"/api/v1/{place}/?{query}={wrong}")
            assert problem(answer, 400, "invalid")["field"] == query


def test_names_in_lists_are_taken_as_they_are_sent(operator: APIClient) -> None:
    problem(operator.post("/api/v1/rebuilds/", {"tags": ["\r"]}, format="json"), 404, "not_found")
    operator.post("/api/v1/tags/", {"name": "hand"}, format="json")
    assigned = operator.post("/api/v1/tags/hand/assign", {"add": [" m1 "]}, format="json")
    assert assigned.json()["unknown"] == [" m1 "]
