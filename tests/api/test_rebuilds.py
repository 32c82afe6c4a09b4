"""/api/v1/rebuilds/, workers/ and partitions/"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tagmill.work import leases, workers
from tagmill.work.models import Worker
from tests.support.http import problem

GPU = {"name": "gpu", "definition": '//node[@class="display"]'}


def post(client: APIClient, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/{path}", body, format="json")


def register(worker: APIClient) -> str:
    answer = post(worker, "workers/register", {"name": "w", "evaluator": "lxml", "version": "1"})
    assert answer.status_code == 201
    name: str = answer.json()["worker"]
    return name


def test_a_forced_rebuild_keeps_the_old_nodes_and_shows_its_progress(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    evaluate()
    made = post(operator, "tags/gpu/rebuild")
    assert made.status_code == 202
    rebuild = made.json()
    assert made["Location"].endswith(f"/api/v1/rebuilds/{rebuild['uuid']}")
    assert (rebuild["tags"], rebuild["state"]) == (["gpu"], "running")
    assert (rebuild["reason"], rebuild["requested_by"]) == ("forced", "the-operator")
    assert (rebuild["progress"]["done"], rebuild["progress"]["total"]) == (0, 1)
    assert operator.get("/api/v1/tags/gpu").json()["node_count"] == 1
    evaluate()
    rebuild = operator.get(f"/api/v1/rebuilds/{rebuild['uuid']}").json()
    assert rebuild["state"] == "complete"
    assert rebuild["progress"]["done"] == 1
    assert rebuild["finished_at"]


def test_all_tags_can_be_rebuilt_at_once(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    for name in ("x", "y"):
        post(operator, "tags/", {"name": name, "definition": f"//{name}"})
    post(operator, "tags/", {"name": "manual"})
    evaluate()
    made = post(operator, "rebuilds/", {"all": True})
    assert made.status_code == 202, made.content
    assert sorted(made.json()["tags"]) == ["x", "y"]


@pytest.mark.parametrize("body", [{}, {"tags": []}, {"tags": ["a"], "all": True}, {"all": False}])
def test_a_rebuild_names_tags_or_all(operator: APIClient, body: dict[str, Any]) -> None:
    problem(post(operator, "rebuilds/", body), 400, "invalid")


def test_a_rebuild_of_a_tag_that_does_not_exist_is_not_found(operator: APIClient) -> None:
    problem(post(operator, "rebuilds/", {"tags": ["typo"]}), 404, "not_found")
    problem(operator.get(f"/api/v1/rebuilds/{uuid.uuid4()}"), 404, "not_found")


def test_a_rebuild_can_be_cancelled_once(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    evaluate()
    made = post(operator, "rebuilds/", {"tags": ["gpu"]}).json()
    cancelled = post(operator, f"rebuilds/{made['uuid']}/cancel")
    assert cancelled.status_code == 200
    assert cancelled.json()["state"] == "cancelled"
    problem(post(operator, f"rebuilds/{made['uuid']}/cancel"), 409, "not_cancellable")
    assert operator.get("/api/v1/tags/gpu").json()["node_count"] == 1


def test_rebuilds_are_listed_newest_first(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    evaluate()
    first = post(operator, "tags/gpu/rebuild").json()["uuid"]
    evaluate()
    second = post(operator, "tags/gpu/rebuild").json()["uuid"]
    page = operator.get("/api/v1/rebuilds/", {"limit": 1}).json()
    assert [row["uuid"] for row in page["results"]] == [second]
    (row,) = operator.get(page["next"]).json()["results"]
    assert row["uuid"] == first
    assert (row["tags"], row["tag_count"], row["tags_truncated"]) == (["gpu"], 1, False)


def test_people_see_workers_with_their_leases(
    operator: APIClient, worker: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    me = register(worker)
    leases.grant(Worker.objects.get(uuid=me), 4, [])
    (row,) = operator.get("/api/v1/workers/").json()["results"]
    assert (row["uuid"], row["name"], row["token"]) == (me, "w", "rack")
    assert row["last_heartbeat"]
    assert len(row["leases"]) == 1
    assert row["throughput"] is None
    for done in ({"seconds": 60, "partitions": 3, "documents": 750}, None):
        said = {"worker": me, "leases": [], **({"done": done} if done else {})}
        assert post(worker, "workers/heartbeat", said).status_code == 200
        # A heartbeat that says nothing of it leaves it as it is.
        (row,) = operator.get("/api/v1/workers/").json()["results"]
        assert row["throughput"] == {"partitions_per_second": 0.1, "documents_per_second": 12.5}


def test_people_see_what_is_stale_in_each_partition(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    (row,) = operator.get("/api/v1/partitions/").json()["results"]
    assert (row["cluster"], row["node_count"], row["stale"]) == ("north", 1, 1)
    evaluate()
    assert operator.get("/api/v1/partitions/").json()["results"][0]["stale"] == 0


def test_a_heartbeat_names_the_leases_that_are_lost(worker: APIClient) -> None:
    me, lost = register(worker), str(uuid.uuid4())
    answer = post(worker, "workers/heartbeat", {"worker": me, "leases": [lost]})
    assert answer.json() == {"lost": [lost]}


def test_a_lease_given_back_can_be_had_again(
    operator: APIClient, worker: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    post(operator, "tags/", GPU)
    me = register(worker)
    row = Worker.objects.get(uuid=me)
    (lease,) = leases.grant(row, 4, []).answer.leases
    assert leases.grant(row, 4, []).answer.leases == []
    given_up = {"worker": me, "leases": [lease.lease], "reason": "draining"}
    assert post(worker, "workers/fail", given_up).json() == {}
    assert len(leases.grant(row, 4, []).answer.leases) == 1


@pytest.mark.parametrize("name", [str(uuid.UUID(int=7)), "nonsense"])
def test_an_unknown_worker_is_gone(worker: APIClient, name: str) -> None:
    problem(post(worker, "workers/heartbeat", {"worker": name, "leases": []}), 410, "worker_gone")


def test_a_worker_is_known_under_its_own_token_alone(worker: APIClient, db: None) -> None:
    me = register(worker)
    _, token = workers.issue_token("other", "all")
    stranger = APIClient()
    stranger.credentials(HTTP_AUTHORIZATION=f"Worker {token}")
    problem(post(stranger, "workers/heartbeat", {"worker": me, "leases": []}), 410, "worker_gone")


@pytest.mark.parametrize(
    ("call", "body", "code", "field"),
    [
        ("heartbeat", {"worker": "x"}, "invalid", None),
        ("heartbeat", {"worker": "x", "leases": [], "wait": 3}, "unknown_field", None),
        ("fail", {"worker": "x", "leases": [1], "reason": ""}, "invalid", "leases[0]"),
    ],
)
def test_messages_that_do_not_fit_the_protocol_are_refused(
    worker: APIClient, call: str, body: dict[str, Any], code: str, field: str | None
) -> None:
    found = problem(post(worker, f"workers/{call}", body), 400, code)
    assert found.get("field") == field


def test_a_message_that_is_no_json_has_a_line_and_a_column(worker: APIClient) -> None:
    body = b'{"worker":\n  oops}'
    answer = worker.post("/api/v1/workers/heartbeat", body, content_type="application/json")
    found = problem(answer, 400, "malformed_body")
    assert (found["line"], found["column"]) == (2, 3)
    empty = worker.post("/api/v1/workers/heartbeat", b"", content_type="application/json")
    problem(empty, 400, "malformed_body")
