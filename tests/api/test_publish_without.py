"""An operator publishes without a cluster where nobody evaluates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from tagmill.audit.models import Event
from tagmill.fleet import clusters
from tests.support import fleet as fleet_support
from tests.support import sql as sql_support
from tests.support import workers as workers_support
from tests.support.http import problem

GPU = {"name": "gpu", "definition": fleet_support.HAS_GPU}


def publish(client: APIClient, *without: str) -> Any:
    return client.post("/api/v1/tags/gpu/publish", {"without": without}, format="json")


def test_a_cluster_without_a_worker_holds_nobody_up_when_an_operator_says_so(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    everywhere = workers_support.a_worker()
    south = clusters.create("south")
    put("a")
    put("b", cluster="south")
    operator.post("/api/v1/tags/", GPU, format="json")
    problem(publish(operator, "south"), 409, "not_complete")
    workers_support.work(everywhere)
    problem(publish(operator, "south"), 409, "nothing_pending")
    assert fleet_support.carriers("gpu") == {"a", "b"}
    # The only worker of the south is gone.
    sql_support.execute("DELETE FROM lease")
    sql_support.execute("DELETE FROM worker")
    operator.patch("/api/v1/tags/gpu", {"definition": "//node"}, format="json")
    found = problem(publish(operator, "south"), 409, "not_complete")
    assert "no worker for cluster north" in found["detail"] and "south" not in found["detail"]
    evaluate()
    # What nobody asked for is not done: readers see the old set, everywhere.
    assert fleet_support.tag("gpu").pending_expression is not None
    put("c", xml=fleet_support.BARE)
    evaluate()
    assert fleet_support.carriers("gpu") == {"a", "b"}
    problem(publish(operator, "nowhere"), 404, "not_found")
    problem(publish(operator), 400, "invalid")
    answer = publish(operator, str(south.uuid))
    assert answer.status_code == 200, answer.content
    assert (answer.json()["definition"], answer.json()["pending_definition"]) == ("//node", None)
    assert answer.json()["state"] == "building"
    assert [wait["cluster"] for wait in answer.json()["waiting_for"]] == ["south"]
    assert fleet_support.carriers("gpu") == {"a", "c"}
    rebuild = operator.get("/api/v1/rebuilds/").json()["results"][0]
    assert (rebuild["state"], rebuild["published_without"]) == ("running", ["south"])
    said = Event.objects.get(action="published", changes__has_key="without")
    assert (said.actor, said.name, said.changes) == ("the-operator", "gpu", {"without": ["south"]})
    # A worker comes back: the south is as all others again.
    workers_support.work(workers_support.a_worker(south, name="back"))
    assert fleet_support.carriers("gpu") == {"a", "b", "c"}
    rebuild = operator.get("/api/v1/rebuilds/").json()["results"][0]
    assert rebuild["state"] == "complete"
    assert operator.get("/api/v1/tags/gpu").json()["state"] == "ready"
