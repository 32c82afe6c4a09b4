"""The trail has a reader and an end; a rebuild that is over keeps its totals, not its targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tagmill.audit.models import Event
from tagmill.fleet import clusters
from tagmill.flows import ingest, maintenance
from tagmill.matches.models import Expression, MatchChange
from tagmill.tags import changes, rebuilds
from tagmill.tags.models import AssignmentChange, Rebuild, RebuildTarget
from tests.support.fleet import BARE, HAS_GPU
from tests.support.http import problem
from tests.support.workers import a_worker, work

GPU = {"name": "gpu", "definition": HAS_GPU}


def trail(client: APIClient, name: str, **parameters: int) -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/tags/{name}/changes", parameters)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def said(found: list[dict[str, Any]]) -> list[tuple[str | None, list[str], list[str]]]:
    return [(item["cluster"], item["added"], item["removed"]) for item in found]


def test_the_trail_names_the_nodes_that_a_tag_gained_and_lost(
    operator: APIClient, viewer: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a", "b", "c")
    operator.post("/api/v1/tags/", GPU, format="json")
    evaluate()
    put("b", xml=BARE)
    evaluate()
    ingest.delete("a")
    evaluate()
    found = trail(viewer, "gpu")
    # The names of deleted nodes are kept, too.
    assert said(found) == [
        ("north", [], ["a"]),
        ("north", [], ["b"]),
        ("north", ["a", "b", "c"], []),
    ]
    assert [(item["from_rev"], item["to_rev"]) for item in found] == [(2, 3), (1, 2), (None, 1)]
    first = viewer.get("/api/v1/tags/gpu/changes", {"limit": 1}).json()
    assert said(first["results"]) == said(found[:1])
    assert said(viewer.get(first["next"]).json()["results"]) == said(found[1:2])
    problem(viewer.get("/api/v1/tags/none/changes"), 404, "not_found")


def test_the_trail_of_a_manual_tag_says_who_assigned_it(
    operator: APIClient, put: Callable[..., None]
) -> None:
    clusters.create("south")
    put("a", "b")
    put("s", cluster="south")
    operator.post("/api/v1/tags/", {"name": "mine"}, format="json")
    operator.post("/api/v1/tags/mine/assign", {"add": ["a", "b"]}, format="json")
    operator.post("/api/v1/tags/mine/assign", {"add": ["a", "s"], "remove": ["b"]}, format="json")
    found = trail(operator, "mine")
    assert said(found) == [("south", ["s"], []), ("north", [], ["b"]), ("north", ["a", "b"], [])]
    assert {item["actor"] for item in found} == {"the-operator"}


def test_an_answer_names_a_bounded_number_of_nodes(
    operator: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put("a", "b", "c")
    operator.post("/api/v1/tags/", GPU, format="json")
    evaluate()
    put("a", xml=BARE)
    evaluate()
    monkeypatch.setattr(changes, "MAX_NAMED", 4)
    with CaptureQueriesContext(connection) as asked:
        newest, oldest = trail(operator, "gpu")
    # Before the next request, which empties the log.
    assert len([query for query in asked if "match_change" in query["sql"]]) == 1
    assert (oldest["added"], oldest["added_count"]) == (["a"], 3)
    assert newest["removed"] == ["a"]
    (oldest,) = [item for item in trail(operator, "gpu", limit=2) if item["added_count"]]
    assert len(oldest["added"]) == 1


def test_old_changes_are_forgotten_in_bounded_batches_as_long_as_the_time_allows(
    operator: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put("a")
    operator.post("/api/v1/tags/", GPU, format="json")
    operator.post("/api/v1/tags/", {"name": "any", "definition": "//node"}, format="json")
    operator.post("/api/v1/tags/", {"name": "mine"}, format="json")
    operator.post("/api/v1/tags/mine/assign", {"add": ["a"]}, format="json")
    evaluate()
    MatchChange.objects.update(at="2020-01-01T00:00Z")
    put("a", xml=BARE)
    evaluate()
    assert MatchChange.objects.count() == 3
    monkeypatch.setattr(changes, "MAX_DELETED", 1)
    monkeypatch.setattr(changes, "MAX_SECONDS", 0)
    assert changes.forget() == 1
    monkeypatch.undo()
    assert [changes.forget(), changes.forget()] == [1, 0]
    assert said(trail(operator, "gpu")) == [("north", [], ["a"])]
    AssignmentChange.objects.update(at="2020-01-01T00:00Z")
    maintenance.clean()
    assert trail(operator, "mine") == []


def test_a_rebuild_that_is_over_keeps_its_totals_and_no_targets(
    operator: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters.create("south")
    put("a")
    put("s", cluster="south")
    operator.post("/api/v1/tags/", GPU, format="json")
    work(a_worker())
    forced = operator.post("/api/v1/tags/gpu/rebuild").json()["uuid"]
    cancelled = operator.post("/api/v1/tags/gpu/rebuild").json()["uuid"]
    evaluate()
    operator.post(f"/api/v1/rebuilds/{cancelled}/cancel")

    def progress(uuid: str) -> Any:
        body = operator.get(f"/api/v1/rebuilds/{uuid}").json()
        return body["state"], body["progress"]

    finished = str(Rebuild.objects.get(reason="created").uuid)
    before = {uuid: progress(uuid) for uuid in (finished, forced, cancelled)}
    assert before[cancelled] == (
        "cancelled",
        {"done": 1, "total": 2, "nodes_done": 1, "nodes_total": 2},
    )
    monkeypatch.setattr(rebuilds, "MAX_DELETED", 3)
    assert [rebuilds.settle(), maintenance.settle(), rebuilds.settle()] == [3, 1, 0]
    # The targets of the rebuild that runs are still wanted.
    assert set(RebuildTarget.objects.values_list("rebuild__state", flat=True)) == {"running"}
    assert {uuid: progress(uuid) for uuid in before} == before
    # Later changes do not undo what was reached.
    put("a", "b")
    assert {uuid: progress(uuid) for uuid in (finished, cancelled)} == {
        uuid: before[uuid] for uuid in (finished, cancelled)
    }
    work(a_worker(name="again"))
    assert progress(forced)[0] == "complete"


def test_targets_stay_until_the_totals_are_stored(
    operator: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put("a")
    for name in ("one", "two"):
        operator.post("/api/v1/tags/", GPU | {"name": name}, format="json")
        evaluate()
    # More rebuilds are over than one run looks at.
    monkeypatch.setattr(rebuilds, "MAX_SETTLED", 1)
    assert rebuilds.settle() == 1
    assert list(Rebuild.objects.order_by("id").values_list("totals", flat=True)) == [
        [1, 1, 1, 1],
        None,
    ]
    assert RebuildTarget.objects.get().rebuild.totals is None
    assert rebuilds.settle() == 1 and not RebuildTarget.objects.exists()
    assert not Rebuild.objects.filter(totals=None).exists()


def sizes(client: APIClient, name: str) -> list[int | None]:
    answer = client.get(f"/api/v1/tags/{name}/sizes")
    assert answer.status_code == 200, answer.content
    points = answer.json()["results"]
    assert [point["at"] for point in points] == sorted(point["at"] for point in points)
    counts = [point["node_count"] for point in points]
    return [count for count, before in zip(counts, [-1, *counts], strict=False) if count != before]


@pytest.mark.django_db(transaction=True)
def test_the_size_of_a_tag_is_known_from_its_making_on(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a", "b", "c")
    put("d", xml=BARE)
    operator.post("/api/v1/tags/", GPU, format="json")
    assert sizes(operator, "gpu") == [0]
    evaluate()
    assert sizes(operator, "gpu") == [0, 3]
    for definition in ("//node", f"{HAS_GPU} or {HAS_GPU}"):
        operator.patch("/api/v1/tags/gpu", {"definition": definition}, format="json")
        evaluate()
    assert sizes(operator, "gpu") == [0, 3, 4, 3]
    # A gap is where changes are not kept: of a definition between, and at the beginning.
    second = Expression.objects.get(text="//node").id
    MatchChange.objects.filter(expression=second).delete()
    assert sizes(operator, "gpu") == [0, 3, None, 3]
    Event.objects.filter(kind="tag").delete()
    assert sizes(operator, "gpu") == [0, None, 3]


def test_the_size_of_a_manual_tag_goes_by_what_was_assigned(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a", "b", "c")
    operator.post("/api/v1/tags/", {"name": "hand"}, format="json")
    for change in ({"add": ["a", "b"]}, {"add": ["c"]}, {"remove": ["a"]}):
        operator.post("/api/v1/tags/hand/assign", change, format="json")
    assert sizes(operator, "hand")[0] == 0
    assert sizes(operator, "hand")[-1] == 2
    AssignmentChange.objects.all().delete()
    assert sizes(operator, "hand") == [0, None, 2]
