"""A tag's members as bitmaps: where each node of the list is, in very little."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill_wire import bitmap
from tests.support.fleet import BARE, HAS_GPU
from tests.support.http import problem

MEMBERS = "/api/v1/tags/gpu/members"
NODES = "/api/v1/tags/gpu/nodes"


def made(admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]) -> None:
    clusters.create("south")
    put("a", "b", "c", "d")
    put("bare", xml=BARE)
    body = {"name": "gpu", "definition": HAS_GPU}
    assert admin.post("/api/v1/tags/", body, format="json").status_code == 201
    evaluate()


def places(answer: Any) -> list[str]:
    """`partition.slot` of each member, in order."""
    found = []
    for each in answer.json()["partitions"]:
        slots = [*bitmap.slots(bitmap.from_bytes(base64.b64decode(each["slots"])))]
        assert len(slots) == each["count"] > 0
        found += [f"{each['partition']}.{slot}" for slot in slots]
    assert len(found) == answer.json()["count"]
    return found


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [each["system_id"] for each in answer.json()["results"]]


def found_last(admin: APIClient) -> int:
    """The last partition."""
    return int(admin.get(MEMBERS).json()["partitions"][-1]["partition"])


def test_every_place_leads_to_the_list_from_there_on(
    admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    made(admin, put, evaluate)
    # It moves to another partition, and one is deleted whose bit the match still has.
    ingest.store([Upload("b", "south")])
    ingest.delete("c")
    found = places(admin.get(MEMBERS))
    listed = names(admin.get(NODES))
    assert sorted(listed) == ["a", "b", "d"]
    for number, place in enumerate(found):
        assert names(admin.get(NODES, {"begin": place, "limit": 1000})) == listed[number:]
        page = admin.get(NODES, {"begin": place, "limit": 1}).json()
        assert [page["results"][0]["system_id"]] == listed[number : number + 1]
        if page["next"]:
            assert names(admin.get(page["next"])) == listed[number + 1 : number + 2]
    assert names(admin.get("/api/v1/nodes/", {"begin": found[1]}))[0] == listed[1]


def test_places_of_all_nodes_and_of_a_preview_lead_into_their_lists(
    admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    made(admin, put, evaluate)
    ingest.store([Upload("b", "south")])
    asked = {
        "definition": "//node[@id='core'] and not(//node[@class='display'])",
        "compare_to": "gpu",
    }
    preview = admin.post("/api/v1/previews/", asked, format="json")["Location"]
    evaluate()
    # A bit of it is left in matches. Nobody has evaluated the preview in the south.
    ingest.delete("c")
    for members, nodes, query, expected in (
        ("/api/v1/places", "/api/v1/nodes/", {}, {"a", "b", "d", "bare"}),
        ("/api/v1/places", "/api/v1/nodes/", {"not_tag": "gpu"}, {"bare"}),
        (f"{preview}/members", f"{preview}/nodes", {}, {"bare"}),
        (f"{preview}/members", f"{preview}/nodes", {"change": "out"}, {"a", "d"}),
        (f"{preview}/members", f"{preview}/nodes", {"change": "removed"}, {"a", "d"}),
        (f"{preview}/members", f"{preview}/nodes", {"change": "added"}, {"bare"}),
        (f"{preview}/members", f"{preview}/nodes", {"change": "out", "cluster": "south"}, set()),
    ):
        answer = admin.get(members, query)
        found = places(answer)
        listed = names(admin.get(nodes, query))
        assert set(listed) == expected
        for number, place in enumerate(found):
            assert names(admin.get(nodes, {**query, "begin": place})) == listed[number:]
        assert len(found) == admin.get(nodes, {**query, "count": "true"}).json()["count"]
        again = admin.get(members, query, headers={"If-None-Match": answer["ETag"]})
        assert again.status_code == 304
    problem(admin.get(f"{preview}/members?change=more"), 400, "invalid")
    problem(admin.get("/api/v1/places", {"tag": "nobody"}), 404, "not_found")


def test_they_take_the_filters_of_the_list(
    admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    made(admin, put, evaluate)
    ingest.store([Upload("b", "south")])
    assert admin.get(MEMBERS, {"cluster": "south"}).json()["partitions"][0]["cluster"] == "south"
    assert len(places(admin.get(MEMBERS, {"cluster": "north"}))) == 3
    assert len(places(admin.get(MEMBERS, {"q": "host-a"}))) == 1
    assert admin.get(MEMBERS, {"q": "nobody"}).json() == {"count": 0, "partitions": []}
    problem(admin.get(MEMBERS, {"cluster": "nowhere"}), 404, "not_found")
    problem(admin.get(MEMBERS, {"limit": "1"}), 400, "unknown_field")


def test_the_same_is_not_sent_twice(
    admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    made(admin, put, evaluate)
    seen = admin.get(MEMBERS)["ETag"]
    again = admin.get(MEMBERS, headers={"If-None-Match": seen})
    assert (again.status_code, again.content) == (304, b"")
    changes: list[Callable[[], Any]] = [
        lambda: ingest.delete("a"),
        lambda: clusters.rename(Cluster.objects.get(name="north"), "new"),
    ]
    for change in changes:
        change()
        answer = admin.get(MEMBERS, headers={"If-None-Match": seen})
        assert answer.status_code == 200
        seen = answer["ETag"]


def test_a_place_that_is_none_is_refused(
    admin: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    made(admin, put, evaluate)
    for wrong in ("", "1", "1.", "x.1", "1.-1", "1." + "9" * 7, "9" * 19 + ".1"):
        found = problem(admin.get(NODES, {"begin": wrong}), 400, "invalid")
        assert found["field"] == "begin"
    after = admin.get(NODES, {"limit": 1}).json()["next"]
    problem(admin.get(f"{after}&begin=1.1"), 400, "invalid")
    last = found_last(admin)
    for beyond in ("9" * 18 + ".131071", f"{last}.131072", f"{last}.999999"):
        assert names(admin.get(NODES, {"begin": beyond})) == []
