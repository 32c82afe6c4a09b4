"""Commands for people who run a server: users who can log in, and tokens listed and revoked."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from api import tokens
from tagmill.work import workers

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


def test_a_user_is_made_who_can_log_in_at_the_page(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    call_command("create_user", "olga", "--role", "operator")
    client = Client()
    answer = client.post("/admin/login/", {"username": "olga", "password": PASSWORD})
    assert answer.status_code == 302
    assert client.get("/admin/tags/tag/add/").status_code == 200
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    with pytest.raises(CommandError, match="too short"):
        call_command("create_user", "ivan", "--role", "operator")


def test_tokens_are_listed_and_revoked(capsys):
    _, worker = workers.issue_token("rack", "all")
    made, user = tokens.create("olga", "viewer")
    _, other = tokens.create("olga", "viewer")
    call_command("tokens")
    listed = capsys.readouterr().out
    assert "rack" in listed and made.key in listed
    assert worker not in listed and user not in listed
    call_command("tokens", "revoke-worker", "rack")
    call_command("tokens", "revoke-user", "olga", "--key", made.key)
    assert workers.authenticate(worker) is None and tokens.find(user) is None
    assert tokens.find(other) is not None
    call_command("tokens", "revoke-user", "olga", "--all")
    assert tokens.find(other) is None
    call_command("tokens")
    assert "revoked 20" in capsys.readouterr().out
    call_command("worker_token", "rack", "--all-clusters")
    with pytest.raises(CommandError, match="lists them"):
        call_command("tokens", "revoke-user", "olga", "--all")


def test_a_host_that_is_not_listed_is_a_problem_that_names_the_setting(client):
    answer = client.get("/api/v1/tags/", headers={"host": "elsewhere.example.com"})
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_host")
    assert "TAGMILL_ALLOWED_HOSTS" in answer.json()["detail"]


def test_a_throttled_login_is_a_page(client):
    answers = [
        client.post("/admin/login/", {"username": "a", "password": "b"}, REMOTE_ADDR="10.9.8.7")
        for _ in range(11)
    ]
    assert answers[-1].status_code == 429
    assert answers[-1]["Content-Type"].startswith("text/html")
    assert "Too many attempts" in answers[-1].content.decode()
    assert int(answers[-1]["Retry-After"]) > 0
