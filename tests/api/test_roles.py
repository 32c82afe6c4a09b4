"""Who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import resolve
from rest_framework.test import APIClient

from api.roles import GROUPS, Role
from api.urls import V1
from tagmill.fleet.models import Cluster
from tests.support.http import ROLES, client_of, problem

UUID = "0d3f5c9e-6a55-4a7c-8d62-5f3f0a3c9b11"
# (method, path, the role that it takes). A test holds that no route of Django's is missing; those
# that are native are in tests/server/test_operations.py.
ADDRESSES = [
    ("get", "auth/token", "none"),
    ("delete", "auth/token", "none"),
    ("get", "", "none"),
    ("get", "auth/tokens/", "none"),
    ("post", "auth/tokens/", "none"),
    ("delete", "auth/tokens/x", "none"),
    ("get", "clusters/", "viewer"),
    ("post", "clusters/", "admin"),
    ("get", "clusters/x", "viewer"),
    ("patch", "clusters/x", "admin"),
    ("delete", "clusters/x", "admin"),
    ("get", "nodes/", "viewer"),
    ("post", "nodes/", "uploader"),
    ("get", "nodes/x", "viewer"),
    ("put", "nodes/x", "uploader"),
    ("patch", "nodes/x", "uploader"),
    ("delete", "nodes/x", "operator"),
    ("get", "nodes/x/tags", "viewer"),
    ("get", "nodes/x/document", "viewer"),
    ("delete", "nodes/x/document", "operator"),
    ("get", "tags/", "viewer"),
    ("post", "tags/", "operator"),
    ("get", "tags/x", "viewer"),
    ("patch", "tags/x", "operator"),
    ("delete", "tags/x", "operator"),
    ("get", "tags/x/explain", "viewer"),
    ("get", "tags/x/nodes", "viewer"),
    ("get", "tags/x/sizes", "viewer"),
    ("get", "places", "viewer"),
    ("get", "tags/x/members", "viewer"),
    ("post", "tags/x/rebuild", "operator"),
    ("post", "tags/x/assign", "operator"),
    ("get", "tags/x/history", "viewer"),
    ("get", "tags/x/changes", "viewer"),
    ("post", "tags/x/publish", "operator"),
    ("get", "audit/", "admin"),
    ("post", "definitions/check", "viewer"),
    ("post", "definitions/lint", "viewer"),
    ("post", "definitions/explain", "viewer"),
    ("post", "previews/", "operator"),
    ("get", f"previews/{UUID}", "operator"),
    ("delete", f"previews/{UUID}", "operator"),
    ("get", f"previews/{UUID}/nodes", "operator"),
    ("get", f"previews/{UUID}/members", "operator"),
    ("get", f"previews/{UUID}/verdicts", "operator"),
    ("get", "rebuilds/", "viewer"),
    ("post", "rebuilds/", "operator"),
    ("get", f"rebuilds/{UUID}", "viewer"),
    ("post", f"rebuilds/{UUID}/cancel", "operator"),
    ("get", "workers/", "operator"),
    ("get", "partitions/", "operator"),
    ("get", "fleet/samples", "operator"),
    ("get", "vocabulary", "viewer"),
    ("get", "cache", "admin"),
    ("post", "cache/flush", "admin"),
    ("post", "cache/enable", "admin"),
    ("post", "cache/disable", "admin"),
    ("get", "users/", "admin"),
    ("get", "users/x", "admin"),
    ("patch", "users/x", "admin"),
    ("get", "user-tokens/", "admin"),
    ("post", "user-tokens/", "admin"),
    ("delete", "user-tokens/x", "admin"),
    ("get", "worker-tokens/", "admin"),
    ("post", "worker-tokens/", "admin"),
    ("get", "worker-tokens/x", "admin"),
    ("delete", "worker-tokens/x", "admin"),
]
FOR_WORKERS = [
    ("post", "workers/register"),
    ("post", "workers/heartbeat"),
    ("post", "workers/fail"),
    ("post", "workers/share"),
]


# What tokens do to their own user is tried in tests of tokens.
OWN = {("delete", "auth/token"), ("post", "auth/tokens/")}


def view_of(route: Any) -> Any:
    return route.callback.cls


def ask(client: APIClient, method: str, path: str) -> Any:
    return getattr(client, method)(f"/api/v1/{path}", format="json")


def test_the_tables_name_every_route_and_method() -> None:
    known = {(method, resolve(f"/api/v1/{path}").url_name) for method, path, _ in ADDRESSES}
    known |= {(method, resolve(f"/api/v1/{path}").url_name) for method, path in FOR_WORKERS}
    # It takes nobody: it is where one becomes somebody.
    known.add(("post", "token"))
    methods = ("get", "post", "put", "patch", "delete")
    served = {
        (method, route.name)
        for route in V1
        for method in methods
        if hasattr(view_of(route), method)
    }
    assert known == served


def test_each_role_may_do_what_the_table_says(db: None) -> None:
    clients = {role: client_of(role) for role in (None, *ROLES)}
    for method, path, needed in ADDRESSES:
        for role, client in clients.items() if (method, path) not in OWN else ():
            is_allowed = Role[needed.upper()] in GROUPS.get(role or "", Role.NONE)
            answer = ask(client, method, path)
            assert (answer.status_code != 403) == is_allowed, (method, path, role, answer.content)
            assert answer.status_code not in {401, 405}, (method, path)
            if not is_allowed:
                assert needed in problem(answer, 403, "forbidden")["detail"]


def test_who_may_not_get_may_not_ask_for_the_headers_either(db: None) -> None:
    """HEAD says what there is, and how long it is."""
    viewer, uploader = client_of("viewer"), client_of("uploader")
    refused = [path for method, path, needed in ADDRESSES if method == "get" and needed == "admin"]
    assert len(refused) > 5
    for path in refused:
        assert ask(viewer, "head", path).status_code == 403, path
    assert ask(uploader, "head", "tags/").status_code == 403
    assert ask(uploader, "head", "auth/token").status_code == 200


def test_without_a_token_nothing_is_shown(anonymous: APIClient) -> None:
    for method, path, _ in ADDRESSES:
        answer = ask(anonymous, method, path)
        problem(answer, 401, "unauthorized")
        assert answer["WWW-Authenticate"] == "Token"


def test_a_worker_token_opens_nothing_but_the_protocol(worker: APIClient) -> None:
    for method, path, _ in ADDRESSES:
        problem(ask(worker, method, path), 401, "unauthorized")


def test_an_uploader_uploads_and_does_nothing_else(
    uploader: APIClient, operator: APIClient, cluster: Cluster
) -> None:
    body = {"system_id": "a", "probes": {"lshw": "<list/>"}}
    assert uploader.post("/api/v1/nodes/", body, format="json").status_code == 201
    assert uploader.patch("/api/v1/nodes/a", {"hostname": "h"}, format="json").status_code == 200
    operator.post("/api/v1/tags/", {"name": "gpu"}, format="json")
    for address in ("nodes/a", "nodes/a/document", "tags/gpu"):
        problem(uploader.delete(f"/api/v1/{address}"), 403, "forbidden")
    assert uploader.get("/api/v1/auth/token").json()["role"] == "uploader"


def test_roles_are_sets_of_rights() -> None:
    assert Role.VIEWER in Role.OPERATOR and Role.UPLOADER in Role.OPERATOR
    assert Role.OPERATOR in Role.ADMIN and Role.ADMIN not in Role.OPERATOR
    assert Role.VIEWER not in Role.UPLOADER and Role.UPLOADER not in Role.VIEWER
    assert Role.VIEWER & Role.UPLOADER is Role.NONE
    both = Role.VIEWER | Role.UPLOADER
    assert both.label == "viewer+uploader"
    for role in (*Role, Role.NONE, Role.OPERATOR, Role.ADMIN, both):
        assert Role.parse(role.label) == role


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
