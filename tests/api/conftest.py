"""Clients of each role, and a small fleet, through the domain's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from lxml import etree
from rest_framework.test import APIClient

from api import tokens
from api.permissions import role_of
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill.work import workers
from tagmill_wire import bitmap

GPU = b"<list><node id='core'><node class='display'/></node></list>"
BARE = b"<list><node id='core'/></list>"
ROLES = ("viewer", "uploader", "operator", "admin")


def make_user(role: str | None, name: str | None = None) -> User:
    user = User.objects.create_user(name or f"the-{role}")
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def client_of(role: str | None) -> APIClient:
    user = make_user(role)
    _, token = tokens.issue(user, role_of(user), days=1)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


@pytest.fixture
def anonymous(db: None) -> APIClient:
    return APIClient()


@pytest.fixture
def viewer(db: None) -> APIClient:
    return client_of("viewer")


@pytest.fixture
def uploader(db: None) -> APIClient:
    return client_of("uploader")


@pytest.fixture
def operator(db: None) -> APIClient:
    return client_of("operator")


@pytest.fixture
def admin(db: None) -> APIClient:
    return client_of("admin")


@pytest.fixture
def cluster(db: None) -> Cluster:
    return clusters.create("north")


@pytest.fixture
def put(cluster: Cluster) -> Callable[..., None]:
    def store(*names: str, xml: bytes = GPU, cluster: str = "north") -> None:
        verdicts = ingest.store(
            [Upload(name, cluster, f"host-{name}", None, {"lshw": xml}) for name in names]
        )
        assert [verdict.error for verdict in verdicts] == [None] * len(names)

    return store


@pytest.fixture
def worker(cluster: Cluster) -> APIClient:
    _, token = workers.issue_token("rack", [cluster])
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Worker {token}")
    return client


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """Assert that the answer is this problem document, whole; return it."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    assert found["code"] == code, found
    assert found["type"] and found["title"] and found["detail"]
    return found


@pytest.fixture
def evaluate(worker: APIClient) -> Callable[[], int]:
    """Does all the work there is, over the worker protocol; answers how many matches applied."""

    def run() -> int:
        registered = _post(worker, "register", {"name": "w1", "evaluator": "lxml", "version": "1"})
        me, named, applied = registered["worker"], registered["incarnation"], 0
        while (leased := _post(worker, "lease", {"worker": me, "max_partitions": 8}))["leases"]:
            results = [_result(worker, leased, lease) for lease in leased["leases"]]
            body = {"worker": me, "incarnation": named, "results": results}
            answer = _post(worker, "complete", body)
            applied += sum(item["applied"] for item in answer["results"])
        return applied

    return run


def _post(worker: APIClient, call: str, body: dict[str, Any]) -> Any:
    answer = worker.post(f"/api/v1/workers/{call}", body, format="json")
    assert answer.status_code in (200, 201), answer.content
    return answer.json()


def _result(worker: APIClient, leased: Any, lease: Any) -> dict[str, Any]:
    path = f"/api/v1/partitions/{lease['partition']}/nodes"
    batch = worker.get(path, {"incarnation": leased["incarnation"]}).json()
    matches = []
    for item in lease["expressions"]:
        text = leased["expressions"][str(item["expression"])]["text"]
        slots = [
            node["slot"]
            for node in batch["nodes"]
            if node["probes"] and etree.fromstring(node["probes"]["lshw"]).xpath(f"boolean({text})")
        ]
        members = bitmap.encode(bitmap.from_slots(slots), lease["capacity"])
        matches.append({"expression": item["expression"], "members": members})
    return {
        "lease": lease["lease"],
        "partition": lease["partition"],
        "rev": batch["rev"],
        "matches": matches,
        "failures": [],
        "documents": len(batch["nodes"]),
        "seconds": 0.01,
    }
