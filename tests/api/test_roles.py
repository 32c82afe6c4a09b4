"""Who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from tests.api.conftest import ROLES, client_of, problem

# (method, path, the least role)
ADDRESSES = [
    ("get", "clusters/", "viewer"),
    ("post", "clusters/", "admin"),
    ("patch", "clusters/x", "admin"),
    ("delete", "clusters/x", "admin"),
    ("get", "nodes/", "viewer"),
    ("post", "nodes/", "operator"),
    ("get", "nodes/x", "viewer"),
    ("patch", "nodes/x", "operator"),
    ("delete", "nodes/x", "operator"),
    ("get", "nodes/x/tags", "viewer"),
    ("get", "nodes/x/document", "viewer"),
    ("delete", "nodes/x/document", "operator"),
    ("post", "nodes/import", "operator"),
    ("get", "tags/", "viewer"),
    ("post", "tags/", "operator"),
    ("get", "tags/x", "viewer"),
    ("patch", "tags/x", "operator"),
    ("delete", "tags/x", "operator"),
    ("get", "tags/x/nodes", "viewer"),
    ("post", "tags/x/rebuild", "operator"),
    ("post", "tags/x/assign", "operator"),
    ("get", "tags/x/history", "viewer"),
    ("get", "audit/", "admin"),
    ("get", "rebuilds/", "viewer"),
    ("post", "rebuilds/", "operator"),
    ("get", "workers/", "operator"),
    ("get", "partitions/", "operator"),
    ("get", "user-tokens/", "admin"),
    ("post", "user-tokens/", "admin"),
    ("get", "worker-tokens/", "admin"),
    ("post", "worker-tokens/", "admin"),
]
FOR_WORKERS = [
    ("post", "workers/register"),
    ("post", "workers/heartbeat"),
    ("post", "workers/lease"),
    ("post", "workers/complete"),
    ("post", "workers/fail"),
    ("get", "partitions/1/nodes"),
]


def ask(client: APIClient, method: str, path: str) -> Any:
    return getattr(client, method)(f"/api/v1/{path}", format="json")


@pytest.mark.parametrize(("method", "path", "least"), ADDRESSES)
def test_each_role_may_do_what_the_table_says(db: None, method: str, path: str, least: str) -> None:
    for role in (None, *ROLES):
        is_allowed = role is not None and ROLES.index(role) >= ROLES.index(least)
        answer = ask(client_of(role), method, path)
        assert (answer.status_code != 403) == is_allowed, (role, answer.content)
        if not is_allowed:
            assert least in problem(answer, 403, "forbidden")["detail"]


@pytest.mark.parametrize(("method", "path", "least"), ADDRESSES)
def test_without_a_token_nothing_is_shown(
    anonymous: APIClient, method: str, path: str, least: str
) -> None:
    answer = ask(anonymous, method, path)
    problem(answer, 401, "unauthorized")
    assert answer["WWW-Authenticate"] == "Token"


@pytest.mark.parametrize(("method", "path", "least"), ADDRESSES)
def test_a_worker_token_opens_nothing_but_the_protocol(
    worker: APIClient, method: str, path: str, least: str
) -> None:
    problem(ask(worker, method, path), 401, "unauthorized")


@pytest.mark.parametrize(("method", "path"), FOR_WORKERS)
def test_not_even_an_admin_speaks_the_worker_protocol(
    admin: APIClient, method: str, path: str
) -> None:
    answer = ask(admin, method, path)
    problem(answer, 401, "unauthorized")
    assert answer["WWW-Authenticate"] == "Worker"


def test_a_superuser_is_an_admin(db: None) -> None:
    client = APIClient()
    client.force_login(User.objects.create_superuser("root"))
    assert client.get("/api/v1/worker-tokens/").status_code == 200


def test_a_session_must_send_the_csrf_token_to_change_anything(db: None) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    problem(client.post("/api/v1/clusters/", {"name": "x"}, format="json"), 403, "csrf_failed")


def test_a_deactivated_user_is_out_at_once(viewer: APIClient) -> None:
    User.objects.update(is_active=False)
    problem(viewer.get("/api/v1/tags/"), 401, "unauthorized")
