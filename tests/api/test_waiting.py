"""Answers say what is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client.core import GaugeMetricFamily
from rest_framework.test import APIClient

from api import metrics
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tagmill.matches.models import Expression
from tagmill.tags import waiting
from tagmill.work import leases, workers
from tagmill.work.models import Lease
from tagmill_wire.messages import Failure
from tests.support.fleet import HAS_GPU, north
from tests.support.workers import a_worker, complete, lease_one, result, work

TAGS = "/api/v1/tags/"


def post(client: APIClient, path: str, body: Any = None) -> Any:
    answer = client.post(f"/api/v1/{path}", body, format="json")
    assert answer.status_code < 300, answer.content
    return answer.json()


def said(body: Any) -> list[tuple[str, str | None, int]]:
    return [(item["reason"], item["cluster"], item["partitions"]) for item in body["waiting_for"]]


def test_a_tag_names_the_cluster_that_has_no_worker(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    clusters.create("south")
    put("a")
    put("b", cluster="south")
    made = post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    assert said(made) == [("no_worker", "north", 1), ("no_worker", "south", 1)]
    evaluate()
    tag = operator.get(f"{TAGS}gpu").json()
    assert tag["state"] == "building"
    assert said(tag) == [("no_worker", "south", 1)]
    assert tag["waiting_for"][0]["message"].startswith("no worker for cluster south: 1 partition")
    listed = operator.get(TAGS).json()["results"][0]
    assert listed["waiting_for"] == tag["waiting_for"]
    (rebuild,) = operator.get("/api/v1/rebuilds/").json()["results"]
    assert (
        operator.get(f"/api/v1/rebuilds/{rebuild['uuid']}").json()["waiting_for"]
        == (tag["waiting_for"])
    )
    # The evaluated tag is waited for no more; a preview says the same as a tag.
    preview = post(operator, "previews/", {"definition": "//node"})
    assert said(preview) == [("no_worker", "south", 1), ("worker", "north", 1)]
    everywhere = a_worker()
    assert said(operator.get(f"{TAGS}gpu").json()) == [("worker", "south", 1)]
    work(everywhere)
    tag = operator.get(f"{TAGS}gpu").json()
    assert (tag["state"], tag["waiting_for"]) == ("ready", [])
    assert operator.get(f"/api/v1/rebuilds/{rebuild['uuid']}").json()["waiting_for"] == []
    assert operator.get(f"/api/v1/previews/{preview['uuid']}").json()["waiting_for"] == []


def test_a_leased_partition_waits_for_its_evaluation_and_a_failure_for_people(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    worker = a_worker()
    post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    _, lease = lease_one(worker)
    assert said(operator.get(f"{TAGS}gpu").json()) == [("evaluation", "north", 1)]
    failures = [Failure(item.expression, "too slow") for item in lease.expressions]
    complete(worker, result(lease, {}, failures=failures))
    Expression.objects.update(failed_at="2026-01-01T00:00Z", failure="too slow")
    tag = operator.get(f"{TAGS}gpu").json()
    assert said(tag) == [("failure", None, 1)]
    assert tag["waiting_for"][0]["message"] == "a failed expression: too slow"


def test_a_partition_that_was_given_back_with_a_delay_is_postponed(
    operator: APIClient, put: Callable[..., None]
) -> None:
    clusters.create("south")
    put("a")
    put("b", cluster="south")
    worker = a_worker()
    post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    _, lease = lease_one(worker)
    leases.give_up(worker, [lease.lease], "slot 0 could not be read", 300)
    tag = operator.get(f"{TAGS}gpu").json()
    assert said(tag) == [("postponed", "north", 1), ("worker", "south", 1)]
    assert "1 partition in cluster north back, which waits for up to" in str(tag["waiting_for"][0])
    (rebuild,) = operator.get("/api/v1/rebuilds/").json()["results"]
    asked = operator.get(f"/api/v1/rebuilds/{rebuild['uuid']}").json()
    assert said(asked) == said(tag)
    # A preview ends no delay; a change of the partition does.
    preview = post(operator, "previews/", {"definition": "//node"})
    assert said(preview) == said(tag)
    put("c")
    assert said(operator.get(f"{TAGS}gpu").json()) == [
        ("worker", "north", 1),
        ("worker", "south", 1),
    ]
    work(worker)
    assert said(operator.get(f"{TAGS}gpu").json()) == []


def test_what_is_postponed_is_counted_beside_what_waits_and_what_is_held(
    operator: APIClient, put: Callable[..., None], configure: Callable[..., None]
) -> None:
    configure(partition_slots=8)
    put(*(f"n{number}" for number in range(24)))
    worker = a_worker()
    post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    _, lease = lease_one(worker)
    leases.give_up(worker, [lease.lease], "slot 0 could not be read", 300)
    assert said(operator.get(f"{TAGS}gpu").json()) == [
        ("postponed", "north", 1),
        ("worker", "north", 2),
    ]
    lease_one(worker)
    found = operator.get(f"{TAGS}gpu").json()
    assert said(found) == [("postponed", "north", 1), ("evaluation", "north", 2)]
    assert "workers hold 1 of 2 partitions" in found["waiting_for"][1]["message"]
    # Nobody is left who could try again.
    workers.revoke(worker.token.name)
    Lease.objects.all().delete()
    assert said(operator.get(f"{TAGS}gpu").json()) == [("no_worker", "north", 3)]


def test_a_worker_whose_token_was_revoked_is_none(
    operator: APIClient, put: Callable[..., None]
) -> None:
    put("a")
    worker = a_worker()
    post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    assert said(operator.get(f"{TAGS}gpu").json()) == [("worker", "north", 1)]
    workers.revoke(worker.token.name)
    assert said(operator.get(f"{TAGS}gpu").json()) == [("no_worker", "north", 1)]


@pytest.mark.django_db
def test_however_many_are_asked_about_it_is_one_statement() -> None:
    north("a")
    wanted = [
        Expression.objects.create(text=f"//a{number}", digest=bytes([number])).id
        for number in range(30)
    ]
    with CaptureQueriesContext(connection) as asked:
        found = waiting.waiting_for(wanted).expressions
    assert len(asked) == 1
    assert {(wait.reason, wait.partitions) for waits in found.values() for wait in waits} == {
        ("no_worker", 1)
    }
    assert set(found) == set(wanted)
    with CaptureQueriesContext(connection) as asked:
        assert waiting.waiting_for().expressions == {}
    assert len(asked) == 0


def test_a_list_of_tags_that_are_ready_asks_nobody_what_they_wait_for(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    evaluate()
    with CaptureQueriesContext(connection) as asked:
        operator.get(TAGS)
    assert not [query for query in asked if "worker_token" in query["sql"]]


def test_workers_name_their_clusters(operator: APIClient, cluster: Cluster) -> None:
    a_worker(cluster, name="of north")
    a_worker(name="of all")
    found = operator.get("/api/v1/workers/").json()["results"]
    assert [(row["token"], row["clusters"]) for row in found] == [
        ("of north", ["north"]),
        ("of all", None),
    ]


def test_metrics_show_clusters_without_a_worker_and_tags_by_state(
    operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    clusters.create("south")
    put("a")
    put("b", cluster="south")
    post(operator, "tags/", {"name": "gpu", "definition": HAS_GPU})
    post(operator, "tags/", {"name": "mine"})
    evaluate()
    found = samples(list(metrics.DatabaseCollector().collect()))
    assert found["tagmill_workers"] == {"north": 1, "south": 0}
    assert found["tagmill_cluster_stale_matches"] == {"north": 0, "south": 1}
    assert found["tagmill_tags"] == {"ready": 1, "building": 1, "failed": 0}
    assert found["tagmill_stale_matches"] == {"": 1}


def samples(families: list[GaugeMetricFamily]) -> dict[str, dict[str, float]]:
    return {
        family.name: {
            next(iter(sample.labels.values()), ""): sample.value for sample in family.samples
        }
        for family in families
    }
