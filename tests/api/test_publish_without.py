"""An operator publishes without a cluster where nobody evaluates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from tagmill.audit.models import Event
from tagmill.fleet import clusters
from tests.support.fleet import BARE, HAS_GPU, carriers, tag
from tests.support.http import problem
from tests.support.sql import execute
from tests.support.workers import a_worker, work

GPU = {"name": "gpu", "definition": HAS_GPU}


def publish(client: APIClient, *without: str) -> Any:
    return client.post("/api/v1/tags/gpu/publish", {"without": without}, format="json")


def test_a_cluster_without_a_worker_holds_nobody_up_when_an_operator_says_so(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    everywhere = a_worker()
    south = clusters.create("south")
    put("a")
    put("b", cluster="south")
    operator.post("/api/v1/tags/", GPU, format="json")
    problem(publish(operator, "south"), 409, "not_complete")
    work(everywhere)
    problem(publish(operator, "south"), 409, "nothing_pending")
    assert carriers("gpu") == {"a", "b"}
    # The only worker of the south is gone.
    execute("DELETE FROM lease")
    execute("DELETE FROM worker")
    operator.patch("/api/v1/tags/gpu", {"definition": "//node"}, format="json")
    found = problem(publish(operator, "south"), 409, "not_complete")
    assert "no worker for cluster north" in found["detail"] and "south" not in found["detail"]
    evaluate()
    # What nobody asked for is not done: readers see the old set, everywhere.
    assert tag("gpu").pending_expression is not None
    put("c", xml=BARE)
    evaluate()
    assert carriers("gpu") == {"a", "b"}
    problem(publish(operator, "nowhere"), 404, "not_found")
    problem(publish(operator), 400, "invalid")
    answer = publish(operator, str(south.uuid))
    assert answer.status_code == 200, answer.content
    assert (answer.json()["definition"], answer.json()["pending_definition"]) == ("//node", None)
    assert answer.json()["state"] == "building"
    assert [wait["cluster"] for wait in answer.json()["waiting_for"]] == ["south"]
    assert carriers("gpu") == {"a", "c"}
    rebuild = operator.get("/api/v1/rebuilds/").json()["results"][0]
    assert (rebuild["state"], rebuild["published_without"]) == ("running", ["south"])
    said = Event.objects.get(action="published", changes__has_key="without")
    assert (said.actor, said.name, said.changes) == ("the-operator", "gpu", {"without": ["south"]})
    # A worker comes back: the south is as all others again.
    work(a_worker(south, name="back"))
    assert carriers("gpu") == {"a", "b", "c"}
    rebuild = operator.get("/api/v1/rebuilds/").json()["results"][0]
    assert rebuild["state"] == "complete"
    assert operator.get("/api/v1/tags/gpu").json()["state"] == "ready"
