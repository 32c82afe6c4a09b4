"""/api/v1/nodes/ and /api/v1/clusters/"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from tagmill.fleet.models import Cluster
from tests.support.fleet import GPU
from tests.support.http import problem

NODES = "/api/v1/nodes/"


def found(client: APIClient, **query: Any) -> list[str]:
    answer = client.get(NODES, query)
    assert answer.status_code == 200, answer.content
    return [node["system_id"] for node in answer.json()["results"]]


def test_a_node_is_made_read_changed_and_deleted(operator: APIClient, cluster: Cluster) -> None:
    body = {"system_id": "a", "hostname": "rack1", "probes": {"lshw": GPU.decode()}}
    made = operator.post(NODES, body, format="json")
    assert made.status_code == 201, made.content
    assert made["Location"].endswith("/api/v1/nodes/a")
    node = made.json()
    assert (node["hostname"], node["kind"], node["cluster"]) == ("rack1", "machine", "north")
    assert [probe["probe"] for probe in node["probes"]] == ["lshw"]
    assert node["freshness"] == {"definitions": 0, "pending": 0, "evaluated_at": None}
    changed = operator.patch(f"{NODES}a", {"hostname": "rack2"}, format="json").json()
    assert changed["hostname"] == "rack2"
    assert changed["rev"] > node["rev"]
    assert operator.delete(f"{NODES}a").status_code == 204
    problem(operator.get(f"{NODES}a"), 404, "not_found")


def test_a_node_says_how_true_its_tags_are(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    def freshness() -> dict[str, Any]:
        found: dict[str, Any] = operator.get(f"{NODES}a").json()["freshness"]
        return found

    put("a")
    for name, definition in (("all", "//node"), ("same", "//node"), ("hand", None)):
        body = {"name": name, "definition": definition}
        assert operator.post("/api/v1/tags/", body, format="json").status_code == 201
    assert freshness() == {"definitions": 1, "pending": 1, "evaluated_at": None}
    evaluate()
    assert freshness()["evaluated_at"]
    assert freshness()["pending"] == 0
    operator.patch("/api/v1/tags/same", {"definition": "//node[1]"}, format="json")
    assert (freshness()["definitions"], freshness()["pending"]) == (2, 1)


def test_a_node_that_exists_is_not_made_again(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    problem(operator.post(NODES, {"system_id": "a"}, format="json"), 409, "already_exists")


def test_a_node_that_is_missing_cannot_be_changed(operator: APIClient, cluster: Cluster) -> None:
    problem(operator.patch(f"{NODES}a", {"hostname": "b"}, format="json"), 404, "not_found")
    problem(operator.delete(f"{NODES}a"), 404, "not_found")


def test_a_node_is_put_whatever_it_was(uploader: APIClient, cluster: Cluster) -> None:
    body = {"hostname": "rack1", "probes": {"lshw": GPU.decode()}}
    if_none = {"If-None-Match": "*"}
    made = uploader.put(f"{NODES}a", body, format="json", headers=if_none)
    assert (made.status_code, made.json()["hostname"]) == (201, "rack1"), made.content
    assert made["Location"].endswith("/api/v1/nodes/a")
    again = uploader.put(f"{NODES}a", body, format="json")
    assert (again.status_code, again["ETag"]) == (200, made["ETag"])
    second = uploader.put(f"{NODES}a", body, format="json", headers=if_none)
    problem(second, 412, "precondition_failed")
    changed = uploader.put(f"{NODES}a", {}, format="json", headers={"If-Match": made["ETag"]})
    assert (changed.json()["hostname"], changed.json()["probes"]) == ("", [])
    lost = uploader.put(f"{NODES}a", body, format="json", headers={"If-Match": made["ETag"]})
    problem(lost, 412, "precondition_failed")
    nobody = uploader.put(f"{NODES}b", {}, format="json", headers={"If-Match": "*"})
    problem(nobody, 412, "precondition_failed")
    problem(uploader.put(f"{NODES}a", {"system_id": "b"}, format="json"), 400, "unknown_field")
    problem(uploader.put(f"{NODES}a%20b", {}, format="json"), 400, "invalid")
    problem(uploader.put(f"{NODES}a", {"cluster": "nowhere"}, format="json"), 404, "not_found")


def test_nodes_are_found_by_tag_cluster_and_hostname(
    admin: APIClient, put: Callable[..., None]
) -> None:
    admin.post("/api/v1/clusters/", {"name": "south"}, format="json")
    put("a", "b", "c")
    put("d", cluster="south")
    for name, members in {"t1": ["a", "b"], "t2": ["b", "d"]}.items():
        admin.post("/api/v1/tags/", {"name": name}, format="json")
        admin.post(f"/api/v1/tags/{name}/assign", {"add": members}, format="json")
    assert found(admin) == ["a", "b", "c", "d"]
    assert found(admin, tag="t1") == ["a", "b"]
    assert found(admin, tag=["t1", "t2"]) == ["b"]
    assert found(admin, not_tag="t1") == ["c", "d"]
    assert found(admin, not_tag=["t1", "t2"]) == ["c"]
    assert found(admin, tag="t2", not_tag="t1") == ["d"]
    assert found(admin, cluster="south") == ["d"]
    assert found(admin, cluster="south", tag="t1") == []
    assert found(admin, hostname="host-c") == ["c"]
    assert found(admin, hostname="host") == []
    assert found(admin, q="HOST-C") == ["c"]
    assert found(admin, q="C") == ["c"]
    assert found(admin, q="ost-c") == []
    assert len(found(admin, q="host")) > 1


def test_a_tag_that_does_not_exist_is_an_error_not_an_empty_answer(viewer: APIClient) -> None:
    problem(viewer.get(NODES, {"tag": "typo"}), 404, "not_found")
    problem(viewer.get(NODES, {"cluster": "typo"}), 404, "not_found")


def test_nodes_made_or_deleted_between_pages_neither_repeat_nor_hide_others(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put(*"abcdef")
    first = operator.get(NODES, {"limit": 3}).json()
    assert [node["system_id"] for node in first["results"]] == ["a", "b", "c"]
    operator.delete(f"{NODES}a")
    put("Z", "g")
    second = operator.get(first["next"]).json()
    assert [node["system_id"] for node in second["results"]] == ["d", "e", "f"]
    third = operator.get(second["next"]).json()
    assert [node["system_id"] for node in third["results"]] == ["Z", "g"]
    assert third["next"] is None


def test_the_next_page_keeps_the_filters(operator: APIClient, put: Callable[..., None]) -> None:
    put(*"abcd")
    operator.post("/api/v1/tags/", {"name": "t"}, format="json")
    operator.post("/api/v1/tags/t/assign", {"add": ["a", "c", "d"]}, format="json")
    page = operator.get(NODES, {"tag": "t", "limit": 2}).json()
    rest = operator.get(page["next"]).json()
    assert [node["system_id"] for node in rest["results"]] == ["d"]


def test_a_cluster_is_made_renamed_and_deleted(admin: APIClient) -> None:
    made = admin.post("/api/v1/clusters/", {"name": "north"}, format="json")
    assert made.status_code == 201
    assert made["Location"].endswith(made.json()["uuid"])
    problem(
        admin.post("/api/v1/clusters/", {"name": "north"}, format="json"), 409, "already_exists"
    )
    changed = admin.patch("/api/v1/clusters/north", {"name": "south"}, format="json").json()
    assert (changed["name"], changed["uuid"]) == ("south", made.json()["uuid"])
    assert admin.delete(f"/api/v1/clusters/{changed['uuid']}").status_code == 204
    problem(admin.get("/api/v1/clusters/south"), 404, "not_found")


def test_a_cluster_with_nodes_is_not_deleted(admin: APIClient, put: Callable[..., None]) -> None:
    put("a")
    problem(admin.delete("/api/v1/clusters/north"), 409, "still_in_use")
    assert admin.get("/api/v1/clusters/north").json()["node_count"] == 1


def test_addresses_work_with_and_without_a_slash_at_the_end(
    viewer: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    for path in ("nodes", "nodes/", "nodes/a", "nodes/a/", "nodes/a/tags", "nodes/a/tags/"):
        assert viewer.get(f"/api/v1/{path}").status_code == 200
