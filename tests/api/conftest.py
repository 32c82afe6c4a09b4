"""Clients of each role, and a small fleet, through the domain's own functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill.work import leases, workers
from tagmill.work.models import Worker
from tests.support.fleet import GPU
from tests.support.http import client_of
from tests.support.workers import complete, evaluated


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


@pytest.fixture
def evaluate(worker: APIClient) -> Callable[[], int]:
    """Does all the work there is; answers how many matches applied. It registers over HTTP; what
    the server answers natively comes from the domain."""

    def run() -> int:
        said = {"name": "w1", "evaluator": "lxml", "version": "1"}
        answer = worker.post("/api/v1/workers/register", said, format="json")
        assert answer.status_code == 201, answer.content
        registered, applied = answer.json(), 0
        me = Worker.objects.get(uuid=registered["worker"])
        while (leased := leases.grant(me, 8, []).answer).leases:
            results = [evaluated(leased, lease) for lease in leased.leases]
            applied += sum(item.applied for item in complete(me, *results).results)
        return applied

    return run
