"""What users' tokens may do, how long, how many there are, and what a request costs."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from api import tokens
from api.models import UserToken
from api.rights import role_of
from api.roles import Role
from tagmill import config, sql
from tests.api.test_tokens import bearing, command, post
from tests.support.http import make_user, problem
from tests.support.sql import execute, plan, scanned


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv("TAGMILL_TOKENS_PER_USER", "2")
    config.load.cache_clear()
    yield 2
    monkeypatch.undo()
    config.load.cache_clear()


def role_now(client: APIClient) -> str:
    role: str = client.get("/api/v1/auth/token").json()["role"]
    return role


def test_a_token_has_the_role_it_was_asked_for(admin: APIClient) -> None:
    make_user("admin", "boss")
    made = post(admin, "user-tokens/", {"user": "boss", "role": "viewer"}).json()
    assert made["role"] == "viewer"
    client = bearing(made["token"])
    assert role_now(client) == "viewer"
    assert client.get("/api/v1/tags/").status_code == 200
    problem(post(client, "tags/", {"name": "gpu"}), 403, "forbidden")
    problem(client.get("/api/v1/user-tokens/"), 403, "forbidden")


def test_asking_for_a_token_promotes_nobody(admin: APIClient) -> None:
    old = bearing(tokens.create("ann", "viewer")[1])
    answer = post(admin, "user-tokens/", {"user": "ann", "role": "operator"})
    assert problem(answer, 400, "invalid")["field"] == "role"
    with pytest.raises(CommandError, match="less than operator"):
        command("create_token", "--user", "ann", "--role", "operator")
    assert role_now(old) == "viewer"
    assert [group.name for group in User.objects.get(username="ann").groups.all()] == ["viewer"]


def test_a_user_who_is_demoted_loses_it_with_all_tokens_at_once(admin: APIClient) -> None:
    clients = [bearing(tokens.create("ann", "operator")[1]) for _ in range(2)]
    assert {role_now(client) for client in clients} == {"operator"}
    changed = admin.patch("/api/v1/users/ann", {"role": "viewer"}, format="json")
    assert changed.json()["role"] == "viewer"
    assert {role_now(client) for client in clients} == {"viewer"}
    command("set_role", "--user", "ann", "--role", "none")
    for client in clients:
        assert role_now(client) == "none"
        problem(client.get("/api/v1/tags/"), 403, "forbidden")


def test_a_user_who_is_promoted_needs_a_new_token_for_it(admin: APIClient) -> None:
    old = bearing(tokens.create("ann", "viewer")[1])
    admin.patch("/api/v1/users/ann", {"role": "admin"}, format="json")
    assert role_now(old) == "viewer"
    assert role_now(bearing(tokens.create("ann")[1])) == "admin"


def test_a_superuser_is_not_demoted_by_a_role(admin: APIClient) -> None:
    User.objects.create_superuser("root")
    problem(admin.patch("/api/v1/users/root", {"role": "viewer"}, format="json"), 409, "conflict")
    with pytest.raises(CommandError, match="superuser"):
        command("set_role", "--user", "root", "--role", "none")
    assert admin.get("/api/v1/users/root").json()["role"] == "admin"


def test_users_are_listed_in_as_many_queries_however_many_there_are(admin: APIClient) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            rows = admin.get("/api/v1/users/").json()["results"]
        assert {"ann", "the-admin"} <= {row["name"] for row in rows}
        return len(seen)

    make_user("viewer", "ann")
    queries()
    few = queries()
    for number in range(10):
        make_user("viewer", f"u{number}")
    assert queries() == few


def test_a_user_without_a_role_gets_no_token(admin: APIClient) -> None:
    make_user(None, "ann")
    answer = post(admin, "user-tokens/", {"user": "ann"})
    assert "give the user the role first" in problem(answer, 400, "invalid")["detail"]


def test_tokens_expire(admin: APIClient) -> None:
    made = post(admin, "user-tokens/", {"user": "ann", "role": "viewer"}).json()
    row = UserToken.objects.get(user__username="ann")
    assert row.expires_at is not None
    assert row.expires_at - row.created_at == timedelta(days=90)
    UserToken.objects.update(expires_at=F("expires_at") - timedelta(days=91))
    problem(bearing(made["token"]).get("/api/v1/tags/"), 401, "unauthorized")


def test_a_token_lasts_as_long_as_asked_for_and_for_ever_only_then(admin: APIClient) -> None:
    for days, lasts in ((0, None), (1.5, timedelta(days=1.5))):
        post(admin, "user-tokens/", {"user": "ann", "role": "viewer", "days": days})
        row = UserToken.objects.filter(user__username="ann").latest("id")
        assert (row.expires_at and row.expires_at - row.created_at) == lasts
    problem(post(admin, "user-tokens/", {"user": "ann", "days": -1}), 400, "invalid")
    with pytest.raises(CommandError, match="--days"):
        call_command("create_token", user="ann", days=float("nan"))


def test_a_user_has_a_limited_number_of_tokens(small_limit: int, db: None) -> None:
    first, _ = tokens.create("ann", "viewer")
    tokens.create("ann")
    with pytest.raises(tokens.TooManyTokens, match="TAGMILL_TOKENS_PER_USER"):
        tokens.create("ann")
    UserToken.objects.filter(pk=first.pk).update(expires_at=Now())
    tokens.create("ann")
    assert UserToken.objects.count() == small_limit


def test_logging_in_again_and_again_ends_the_oldest_login(small_limit: int, db: None) -> None:
    user = make_user("viewer", "ann")
    user.set_password("correct horse")
    user.save()
    issued = tokens.create("ann")[1]
    login = {"username": "ann", "password": "correct horse"}
    made = [post(APIClient(), "auth/token", login).json() for _ in range(3)]
    oldest, *others = (bearing(answer["token"]) for answer in made)
    problem(oldest.get("/api/v1/tags/"), 401, "unauthorized")
    for client in (*others, bearing(issued)):
        assert client.get("/api/v1/tags/").status_code == 200
    row = UserToken.objects.filter(is_login=True).latest("id")
    assert row.expires_at is not None
    assert row.expires_at - row.created_at == timedelta(hours=12)


def _authenticated(token: str) -> list[dict[str, str]]:
    with CaptureQueriesContext(connection) as seen:
        assert tokens.find(token) is not None
    return seen.captured_queries


def test_a_request_looks_at_one_token_however_many_there_are(db: None) -> None:
    user = make_user("viewer", "ann")
    _, token = tokens.issue(user, Role.VIEWER, days=1)
    _authenticated(token)
    (alone,) = _authenticated(token)
    many = ({"digest": secrets.token_bytes(64), "key": token[:15]} for _ in range(5000))
    UserToken.objects.bulk_create(UserToken(user=user, role="viewer", **row) for row in many)
    (among_many,) = _authenticated(token)
    assert among_many["sql"] == alone["sql"]
    execute("ANALYZE user_token")
    values = {"digests": [secrets.token_bytes(64)], "groups": ["viewer"], "recorded_every": 60.0}
    found = plan(sql.query(tokens.__file__, "tokens"), values)
    assert "user_token" not in scanned(found)


def test_tokens_of_several_users_are_told_apart_in_one_look(db: None) -> None:
    roles = {"ann": "viewer", "bob": "admin"}
    made = {name: tokens.create(name, role)[1] for name, role in roles.items()}
    gone = tokens.create("cy", "viewer")[1]
    User.objects.filter(username="cy").update(is_active=False)
    tokens.find_all(made.values())
    with CaptureQueriesContext(connection) as seen:
        found = tokens.find_all([*made.values(), gone, "wrong", ""])
    assert len(seen) == 1
    assert found.keys() == set(made.values())
    users = [found[token].user for token in made.values()]
    assert [user.get_username() for user in users] == list(roles)
    assert [role_of(user) for user in users] == [Role.VIEWER, Role.ADMIN]


def test_the_last_use_is_recorded_once_a_minute(db: None) -> None:
    row, token = tokens.create("ann", "viewer")
    assert len(_authenticated(token)) == 2
    assert len(_authenticated(token)) == 1
    row.refresh_from_db()
    assert row.last_used_at is not None
    UserToken.objects.update(last_used_at=Now() - timedelta(seconds=61))
    assert len(_authenticated(token)) == 2


def test_pages_of_tokens_do_not_show_digests(admin: APIClient) -> None:
    tokens.create("ann", "viewer")
    answer = admin.get("/api/v1/user-tokens/?limit=1").json()
    cursor = answer["next"].split("after=")[1].split("&")[0]
    shown = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    assert int(shown) == UserToken.objects.order_by("id")[0].id
    (second,) = admin.get(answer["next"]).json()["results"]
    assert second["user"] == "ann"


def _old_token(user: User) -> str:
    """A token as django-rest-knox stored it."""
    token = secrets.token_hex(32)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS knox_authtoken (digest varchar(128) PRIMARY KEY, token_key "
            "varchar(25), user_id int, created timestamptz, expiry timestamptz)"
        )
        cursor.execute(
            "INSERT INTO knox_authtoken VALUES (%s, %s, %s, now(), null)",
            [hashlib.sha512(token.encode()).hexdigest(), token[:15], user.pk],
        )
    return token


def _migrate(name: str | None) -> None:
    executor: Any = MigrationExecutor(connection)
    executor.migrate([("api", name)])


def test_tokens_issued_before_roles_were_stored_go_on_working(db: None) -> None:
    _migrate("0001_user_tokens")
    user = make_user("viewer", "ann")
    user.groups.add(Group.objects.get(name="operator"))
    old = _old_token(user)
    root = _old_token(User.objects.create_superuser("root"))
    nobody = _old_token(make_user(None, "nobody"))
    # Tables are not altered while a constraint is still to be checked.
    execute("SET CONSTRAINTS ALL IMMEDIATE")
    ((_, newest),) = MigrationExecutor(connection).loader.graph.leaf_nodes("api")
    _migrate(newest)
    assert role_now(bearing(old)) == "operator"
    assert role_now(bearing(root)) == "admin"
    assert role_now(bearing(nobody)) == "none"
    for row in UserToken.objects.all():
        assert row.expires_at is not None
        assert row.expires_at - row.created_at == timedelta(days=90)
    assert "knox_authtoken" not in connection.introspection.table_names()


def test_everybody_makes_and_revokes_tokens_of_their_own(db: None) -> None:
    browser, other = APIClient(), APIClient()
    browser.force_login(make_user("operator", "ann"))
    other.force_login(make_user("operator", "ben"))
    made = post(browser, "auth/tokens/", {"name": "nightly", "role": "uploader", "days": 7}).json()
    (mine,) = browser.get("/api/v1/auth/tokens/").json()["results"]
    assert (mine["name"], mine["role"], mine["is_login"]) == ("nightly", "uploader", False)
    assert made["token"].startswith(mine["key"])
    assert other.get("/api/v1/auth/tokens/").json()["results"] == []
    assert other.delete(f"/api/v1/auth/tokens/{mine['key']}").status_code == 404
    assert browser.delete(f"/api/v1/auth/tokens/{mine['key']}").status_code == 204
    assert not UserToken.objects.exists()
    problem(post(browser, "auth/tokens/", {"role": "admin"}), 400, "invalid")


def test_a_token_of_a_program_makes_no_other(db: None) -> None:
    user = make_user("operator", "boss")
    program = bearing(tokens.issue(user, Role.OPERATOR, 1)[1])
    problem(post(program, "auth/tokens/", {}), 403, "forbidden")
    by_password = bearing(tokens.log_in(user)[1])
    assert post(by_password, "auth/tokens/", {}).status_code == 201
    # A token that may less than its user makes none that may more.
    user.groups.set([Group.objects.get(name="viewer")])
    problem(post(by_password, "auth/tokens/", {"role": "operator"}), 400, "invalid")
