"""Tokens of people and of workers, over the API and on the command line."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from api import authentication, rights, tokens
from api.models import UserToken
from api.roles import Role
from tagmill.fleet.models import Cluster
from tagmill.work.models import WorkerToken
from tests.support.http import make_user, problem


def post(client: APIClient, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/{path}", body, format="json")


def bearing(token: str, scheme: str = "Token") -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"{scheme} {token}")
    return client


def command(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().strip()


def test_a_name_and_a_password_get_a_token_that_can_be_revoked(db: None) -> None:
    user = make_user("operator", "ann")
    user.set_password("correct horse")
    user.save()
    made = post(APIClient(), "auth/token", {"username": "ann", "password": "correct horse"})
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    client = bearing(made.json()["token"])
    assert client.get("/api/v1/auth/token").json() == {
        "user": "ann",
        "role": "operator",
        "clusters": {},
    }
    assert client.delete("/api/v1/auth/token").status_code == 204
    problem(client.get("/api/v1/tags/"), 401, "unauthorized")


@pytest.mark.parametrize("first", ["/api/v1/auth/token", "/admin/login/"])
def test_the_eleventh_guess_waits_wherever_and_whatever_the_client_claims(
    db: None, first: str
) -> None:
    """Under changing addresses, and while it is logged in: the login page and tokens together."""
    client = APIClient()
    client.force_login(User.objects.create_superuser("root"))
    guess = {"username": "ann", "password": "?"}
    addresses = (f"10.0.0.{number}" for number in range(100))

    def attempt(path: str) -> Any:
        kind = "json" if path.startswith("/api/") else "multipart"
        return client.post(path, guess, format=kind, HTTP_X_FORWARDED_FOR=next(addresses))

    for _ in range(10):
        assert attempt(first).status_code in {200, 401}
    found = problem(attempt("/api/v1/auth/token"), 429, "throttled")
    assert f"wait {found['retry_after']} s" in found["detail"]
    page = attempt("/admin/login/")
    assert page.status_code == 429
    assert 0 < int(page["Retry-After"]) <= found["retry_after"]
    assert client.get("/admin/login/").status_code == 302


def test_only_the_hash_of_a_token_is_stored(db: None) -> None:
    token = command("create_token", "--user", "ann", "--role", "viewer")
    assert token not in str(list(UserToken.objects.values()))


def test_the_command_makes_a_user_without_a_password(db: None) -> None:
    token = command("create_token", "--user", "ann", "--role", "operator")
    assert bearing(token).get("/api/v1/auth/token").json()["role"] == "operator"
    assert not User.objects.get(username="ann").has_usable_password()
    assert command("create_token", "--user", "ann") != token


def test_the_command_makes_no_user_without_a_role(db: None) -> None:
    with pytest.raises(CommandError, match="--role"):
        command("create_token", "--user", "ann")
    assert not User.objects.exists()


def test_an_admin_issues_and_revokes_the_tokens_of_users(admin: APIClient) -> None:
    made = post(admin, "user-tokens/", {"user": "bob", "role": "viewer"})
    assert made.status_code == 201
    client = bearing(made.json()["token"])
    assert client.get("/api/v1/tags/").status_code == 200
    rows = admin.get("/api/v1/user-tokens/").json()["results"]
    (key,) = [row["key"] for row in rows if row["user"] == "bob"]
    assert admin.delete(f"/api/v1/user-tokens/{key}").status_code == 204
    problem(client.get("/api/v1/tags/"), 401, "unauthorized")


def test_a_worker_token_is_shown_once_and_can_be_revoked(
    admin: APIClient, cluster: Cluster
) -> None:
    made = post(admin, "worker-tokens/", {"name": "rack", "clusters": ["north"]})
    assert made.status_code == 201
    issued = made.json()
    assert issued["token"].startswith(f"tmw_{issued['lookup']}_")
    (row,) = admin.get("/api/v1/worker-tokens/").json()["results"]
    assert row["clusters"] == ["north"]
    assert "token" not in row
    client = bearing(issued["token"], "Worker")
    hello = {"name": "w", "evaluator": "lxml", "version": "1"}
    registered = post(client, "workers/register", hello).json()
    assert registered["clusters"] == [str(cluster.uuid)]
    assert admin.delete(f"/api/v1/worker-tokens/{issued['lookup']}").status_code == 204
    problem(post(client, "workers/register", hello), 401, "unauthorized")
    assert admin.get(f"/api/v1/worker-tokens/{issued['lookup']}").json()["revoked_at"]


@pytest.mark.parametrize("body", [{}, {"clusters": []}, {"clusters": ["x"], "all_clusters": True}])
def test_a_worker_token_names_clusters_or_all(admin: APIClient, body: dict[str, Any]) -> None:
    problem(post(admin, "worker-tokens/", {"name": "rack", **body}), 400, "invalid")


def test_a_worker_token_for_a_cluster_that_does_not_exist_is_refused(admin: APIClient) -> None:
    problem(post(admin, "worker-tokens/", {"name": "r", "clusters": ["typo"]}), 404, "not_found")


def test_the_command_prints_a_worker_token(cluster: Cluster) -> None:
    token = command("worker_token", "rack", "--cluster", "north")
    hello = {"name": "w", "evaluator": "lxml", "version": "1"}
    assert post(bearing(token, "Worker"), "workers/register", hello).status_code == 201
    assert command("worker_token", "everywhere", "--all-clusters")
    assert WorkerToken.objects.get(name="everywhere").all_clusters
    with pytest.raises(CommandError, match="typo"):
        command("worker_token", "other", "--cluster", "typo")


@pytest.mark.parametrize("header", ["", "Token", "Token x", "Basic x", "Token \xff", "Worker x"])
def test_a_header_without_a_good_token_is_nobody(db: None, header: str) -> None:
    assert authentication.user_for_header(header) is None


def test_a_header_with_a_good_token_is_its_user(db: None) -> None:
    _, token = tokens.issue(make_user("viewer", "ann"), Role.ADMIN, days=1)
    user = authentication.user_for_header(f"token {token}")
    assert user is not None
    assert user.username == "ann"
    assert rights.may(user, Role.VIEWER)
    assert not rights.may(user, Role.OPERATOR)


def test_a_token_may_be_sent_as_bearer(db: None) -> None:
    """Clients that are generated do; natively answered addresses take it as well."""
    user = make_user("viewer", "ann")
    _, token = tokens.issue(user, Role.VIEWER, days=1)
    client = APIClient()
    for scheme in ("Bearer", "bearer", "Token"):
        client.credentials(HTTP_AUTHORIZATION=f"{scheme} {token}")
        assert client.get("/api/v1/auth/token").json()["user"] == "ann"
        assert authentication.user_for_header(f"{scheme} {token}") == user
    client.credentials(HTTP_AUTHORIZATION=f"Basic {token}")
    problem(client.get("/api/v1/auth/token"), 401, "unauthorized")


def test_a_worker_token_looks_its_clusters_up_at_once(admin: APIClient) -> None:
    names = [f"c{number}" for number in range(200)]
    made = Cluster.objects.bulk_create([Cluster(name=name) for name in names])
    chosen = [str(cluster.uuid) for cluster in made[:100]] + names[100:]

    def queries(keys: list[str]) -> int:
        with CaptureQueriesContext(connection) as asked:
            body = {"name": f"w{len(keys)}", "clusters": keys}
            answer = post(admin, "worker-tokens/", body)
        assert sorted(answer.json()["clusters"]) == sorted(
            cluster.name for cluster in made if cluster.name in keys or str(cluster.uuid) in keys
        )
        return len(asked)

    # The first notes when the token was used.
    queries(chosen[:3])
    assert queries(chosen) == queries(chosen[:1])
    wrong = post(admin, "worker-tokens/", {"name": "w", "clusters": [*names, "missing"]})
    assert "missing" in problem(wrong, 404, "not_found")["detail"]
