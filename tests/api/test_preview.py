"""Previews over REST: what a definition would match, before a tag has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tagmill import config
from tagmill.flows import ingest
from tagmill.matches.models import Match
from tagmill.work import queue
from tagmill_expressions import parser
from tagmill_expressions.syntax import SyntaxTree
from tests.support.fleet import BARE
from tests.support.http import problem
from tests.support.workers import a_worker, work

HAS_GPU = "//node[@class='display']"
URL = "/api/v1/previews"


def ask(user: APIClient, definition: str = HAS_GPU, **fields: Any) -> Any:
    answer = user.post(URL, {"definition": definition, **fields}, format="json")
    assert answer.status_code in (200, 202), answer.content
    return answer


@pytest.fixture
def fleet(put: Callable[..., None]) -> None:
    put("a", "b", "c")
    put("d", "e", xml=BARE)


def test_a_preview_says_what_a_definition_would_match(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    asked = ask(operator)
    assert asked.status_code == 202
    assert asked.json()["state"] == "evaluating"
    assert asked.json()["progress"] == {"partitions": 1, "pending": 1}
    evaluate()
    found = operator.get(asked["Location"])
    assert found.status_code == 200
    body = found.json()
    assert (body["state"], body["node_count"]) == ("complete", 3)
    assert (body["definition"], body["namespaces"]) == (HAS_GPU, {})
    assert body["progress"] == {"partitions": 1, "pending": 0}
    assert [(item["name"], item["node_count"]) for item in body["clusters"]] == [("north", 3)]
    assert [item["system_id"] for item in body["nodes"]["results"]] == ["a", "b", "c"]
    assert body["nodes"]["results"][0]["hostname"] == "host-a"
    assert body["nodes"]["next"] is None
    assert (body["compare_to"], body["added"], body["removed"]) == (None, None, None)


def test_a_definition_that_is_previewed_and_saved_is_parsed_once(
    fleet: None, operator: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = parser.parse

    def counted(text: str) -> SyntaxTree:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(parser, "parse", counted)
    text = "//node[@id='parsed once']"
    asked = ask(operator, text)
    operator.get(asked["Location"])
    made = operator.post("/api/v1/tags/", {"name": "once", "definition": text}, format="json")
    assert made.status_code == 201
    assert parsed == [text]


def test_a_preview_against_a_tag_says_what_it_adds_and_removes(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    operator.post(
        "/api/v1/tags/", {"name": "some", "definition": "//node[not(node)]"}, format="json"
    )
    evaluate()
    asked = ask(operator, "//node[@id='core']/node", compare_to="some").json()
    assert (asked["node_count"], asked["added"], asked["removed"]) == (None, None, None)
    evaluate()
    body = operator.get(f"{URL}/{asked['uuid']}").json()
    assert body["compare_to"] == "some"
    assert (body["node_count"], body["added"], body["removed"]) == (3, 0, 2)
    assert body["clusters"][0]["removed"] == 2

    def nodes(change: str) -> list[str]:
        page = operator.get(f"{URL}/{asked['uuid']}/nodes?change={change}").json()
        return [item["system_id"] for item in page["results"]]

    assert (nodes("added"), nodes("removed"), nodes("members")) == ([], ["d", "e"], ["a", "b", "c"])


def listed(user: APIClient, uuid: str, **query: Any) -> list[str]:
    """Through all pages."""
    page = user.get(f"{URL}/{uuid}/nodes", {"limit": 2, **query}).json()
    seen = [item["system_id"] for item in page["results"]]
    while page["next"]:
        page = user.get(page["next"]).json()
        seen += [item["system_id"] for item in page["results"]]
    return seen


def test_nobody_is_counted_before_anything_is_evaluated(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    asked = ask(operator).json()
    assert asked["state"] == "evaluating"
    assert (asked["node_count"], asked["share"], asked["total"]) == (None, None, 5)
    assert asked["evaluated"] == {"partitions": 0, "of": 1, "nodes": 0}
    assert asked["clusters"][0]["node_count"] is None
    evaluate()
    found = operator.get(f"{URL}/{asked['uuid']}").json()
    assert (found["node_count"], found["share"], found["total"]) == (3, 0.6, 5)
    assert found["evaluated"] == {"partitions": 1, "of": 1, "nodes": 5}
    assert (found["clusters"][0]["total"], found["clusters"][0]["share"]) == (5, 0.6)


def test_a_fleet_without_nodes_has_none_that_match(cluster: Any, operator: APIClient) -> None:
    found = ask(operator).json()
    assert (found["state"], found["node_count"], found["share"]) == ("complete", 0, None)


def test_who_is_out_is_listed_too(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    uuid = ask(operator).json()["uuid"]
    assert listed(operator, uuid, change="out") == []
    evaluate()
    ingest.delete("d")
    assert listed(operator, uuid, change="out") == ["e"]
    assert listed(operator, uuid, change="members") == ["a", "b", "c"]


def test_a_preview_may_be_looked_at_in_one_cluster(
    fleet: None,
    operator: APIClient,
    admin: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
) -> None:
    admin.post("/api/v1/clusters/", {"name": "south"}, format="json")
    put("s1", "s2", "s3", cluster="south")
    put("s4", cluster="south", xml=BARE)
    uuid = ask(operator).json()["uuid"]
    evaluate()
    # The worker's token is for the north alone: nothing is known of the south.
    south = operator.get(f"{URL}/{uuid}?cluster=south").json()
    assert (south["cluster"], south["node_count"], south["total"]) == ("south", None, 4)
    whole = operator.get(f"{URL}/{uuid}").json()
    assert (whole["node_count"], whole["total"], whole["share"]) == (3, 9, 0.6)
    assert whole["evaluated"] == {"partitions": 1, "of": 2, "nodes": 5}
    counts = {item["name"]: item["node_count"] for item in whole["clusters"]}
    assert counts == {"north": 3, "south": None}
    north = operator.get(f"{URL}/{uuid}?cluster=north&limit=2").json()
    assert (north["node_count"], north["total"]) == (3, 5)
    assert [item["name"] for item in north["clusters"]] == ["north"]
    work(a_worker())
    south = operator.get(f"{URL}/{uuid}?cluster=south&limit=2").json()
    assert (south["state"], south["node_count"], south["share"]) == ("complete", 3, 0.75)
    page = operator.get(south["nodes"]["next"]).json()
    assert [item["system_id"] for item in page["results"]] == ["s3"]
    assert listed(operator, uuid, change="out", cluster="south") == ["s4"]
    problem(operator.get(f"{URL}/{uuid}?cluster=none"), 404, "not_found")
    body = {"definition": "//a"}
    problem(operator.post(f"{URL}?cluster=none", body, format="json"), 404, "not_found")
    assert operator.get(f"{URL}/{uuid}").status_code == 200


def test_a_manual_tag_can_be_compared_with(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    operator.post("/api/v1/tags/", {"name": "mine"}, format="json")
    operator.post("/api/v1/tags/mine/assign", {"add": ["a", "e"]}, format="json")
    uuid = ask(operator, compare_to="mine").json()["uuid"]
    evaluate()
    body = operator.get(f"{URL}/{uuid}").json()
    assert (body["added"], body["removed"]) == (2, 1)


def test_the_nodes_come_in_pages(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    uuid = ask(operator, "//node").json()["uuid"]
    evaluate()
    page = operator.get(f"{URL}/{uuid}?limit=2").json()["nodes"]
    seen = [item["system_id"] for item in page["results"]]
    while page["next"]:
        page = operator.get(page["next"]).json()
        assert len(page["results"]) <= 2
        seen += [item["system_id"] for item in page["results"]]
    assert seen == ["a", "b", "c", "d", "e"]


def test_a_deleted_node_is_counted_no_more(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    uuid = ask(operator).json()["uuid"]
    evaluate()
    ingest.delete("b")
    body = operator.get(f"{URL}/{uuid}").json()
    assert (body["state"], body["node_count"]) == ("complete", 2)
    assert [item["system_id"] for item in body["nodes"]["results"]] == ["a", "c"]


def test_a_newer_preview_of_the_same_client_ends_the_older_and_its_work(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    older = ask(operator, "//node[1]").json()["uuid"]
    newer = ask(operator, "//node[2]").json()["uuid"]
    problem(operator.get(f"{URL}/{older}"), 404, "not_found")
    assert evaluate() == 1
    assert operator.get(f"{URL}/{newer}").json()["state"] == "complete"


def test_clients_do_not_disturb_each_other(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    first = ask(operator, "//node[1]", client="left").json()["uuid"]
    ask(operator, "//node[2]", client="right")
    assert evaluate() == 2
    assert operator.get(f"{URL}/{first}").json()["state"] == "complete"


def test_a_cancelled_preview_leaves_no_work(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    uuid = ask(operator).json()["uuid"]
    assert operator.delete(f"{URL}/{uuid}").status_code == 204
    assert evaluate() == 0
    assert queue.job_counts()["todo"] == 0
    problem(operator.delete(f"{URL}/{uuid}"), 404, "not_found")


def test_committing_a_previewed_definition_evaluates_nothing_again(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    operator.post("/api/v1/tags/", {"name": "old", "definition": "//node"}, format="json")
    evaluate()
    ask(operator)
    evaluate()
    before = list(Match.objects.order_by("pk").values_list("rev", "evaluated_at"))
    body = {"name": "gpu", "definition": HAS_GPU}
    made = operator.post("/api/v1/tags/", body, format="json").json()
    assert (made["definition"], made["pending_definition"]) == (HAS_GPU, None)
    assert (made["state"], made["node_count"]) == ("ready", 3)
    changed = operator.patch("/api/v1/tags/old", {"definition": HAS_GPU}, format="json").json()
    assert (changed["definition"], changed["node_count"]) == (HAS_GPU, 3)
    assert queue.job_counts()["todo"] == 0
    assert evaluate() == 0
    assert list(Match.objects.order_by("pk").values_list("rev", "evaluated_at")) == before


def test_a_preview_of_what_a_tag_has_is_complete_at_once(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    operator.post("/api/v1/tags/", {"name": "gpu", "definition": HAS_GPU}, format="json")
    evaluate()
    assert ask(operator).status_code == 200


def test_a_syntax_error_names_its_column(operator: APIClient) -> None:
    answer = operator.post(URL, {"definition": "//node["}, format="json")
    assert problem(answer, 400, "invalid_definition")["column"] == 8


def test_what_is_wrong_is_refused(fleet: None, operator: APIClient, viewer: APIClient) -> None:
    problem(viewer.post(URL, {"definition": "//a"}, format="json"), 403, "forbidden")
    problem(operator.post(URL, {}, format="json"), 400, "invalid")
    body = {"definition": "//a", "compare_to": "none"}
    problem(operator.post(URL, body, format="json"), 404, "not_found")
    problem(operator.post(URL, {"definition": "//a", "x": 1}, format="json"), 400, "unknown_field")
    uuid = ask(operator).json()["uuid"]
    problem(viewer.get(f"{URL}/{uuid}"), 403, "forbidden")
    problem(operator.get(f"{URL}/{uuid}/nodes?change=added"), 400, "invalid")
    problem(operator.get(f"{URL}/{uuid}/nodes?change=more"), 400, "invalid")
    problem(operator.get(f"{URL}/{uuid}/nodes?after=x"), 400, "invalid")


def test_a_user_may_ask_for_so_many_in_a_minute(
    fleet: None, operator: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAGMILL_PREVIEWS_PER_MINUTE", "2")
    config.load.cache_clear()
    try:
        ask(operator)
        ask(operator)
        answer = operator.post(URL, {"definition": "//a"}, format="json")
        found = problem(answer, 429, "throttled")
        assert int(answer["Retry-After"]) == found["retry_after"] > 0
    finally:
        monkeypatch.undo()
        config.load.cache_clear()


def test_a_deleted_tag_is_compared_with_no_more(fleet: None, operator: APIClient) -> None:
    operator.post("/api/v1/tags/", {"name": "gone"}, format="json")
    uuid = ask(operator, compare_to="gone").json()["uuid"]
    operator.delete("/api/v1/tags/gone")
    assert operator.get(f"{URL}/{uuid}").json()["compare_to"] is None


def test_the_verdicts_on_some_nodes_are_asked_for_by_name(
    fleet: None, operator: APIClient, evaluate: Callable[[], int]
) -> None:
    place = f"{ask(operator)['Location']}/verdicts"

    def members() -> dict[str, bool | None]:
        found = operator.get(place, {"node": ["d", "a", "nobody"]}).json()["results"]
        return {row["system_id"]: row["member"] for row in found}

    assert members() == {"a": None, "d": None}
    evaluate()
    assert members() == {"a": True, "d": False}
    ingest.delete("a")
    assert members() == {"d": False}
    assert problem(operator.get(place), 400, "invalid")["field"] == "node"
    assert problem(operator.get(place, {"node": ["a"] * 101}), 400, "invalid")["field"] == "node"
    assert problem(operator.get(place, {"node": "a\0"}), 400, "invalid")["field"] == "node"


def test_the_nodes_of_a_preview_are_counted_where_that_is_asked(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    made = operator.post("/api/v1/previews/", {"definition": "//node"}, format="json").json()
    address = f"/api/v1/previews/{made['uuid']}/nodes"
    assert operator.get(f"{address}?count=true").json()["count"] == 0
    assert operator.get(f"{address}?count=null").status_code == 400
