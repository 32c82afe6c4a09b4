"""Who has logged in at one server is logged in at the others, whatever their data directories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from api import signing
from api.models import SigningKey
from tagmill.config import Config
from tests.support.sql import database_url

# What a server does before it answers: it takes the key, and says whose session a cookie is.
SERVER = """
import sys
import django
django.setup()
from django.conf import settings
from django.test import Client
from api import signing
from tagmill.config import load
signing.share(load())
client = Client()
client.cookies[settings.SESSION_COOKIE_NAME] = sys.argv[1]
print(client.get("/api/v1/auth/token", SERVER_NAME="localhost").json().get("user"))
"""


def server(var: Path, cookie: str, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", SERVER, cookie],
        env=os.environ | {"DATABASE_URL": database_url(), "TAGMILL_VAR": str(var)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return found.stdout.strip()


def test_a_session_holds_at_every_server(
    transactional_db: None,
    tmp_path: Path,
    settings: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAGMILL_SECRET_KEY", "")
    (tmp_path / "secret_key").write_text("that of an earlier version of one server")
    signing.share(Config(secret_key=""))
    user = User.objects.create_user("ann", password="a good password")
    client = Client()
    client.force_login(user)
    cookie = client.cookies["sessionid"].value
    monkeypatch.delenv("TAGMILL_SECRET_KEY")
    assert server(tmp_path, cookie) == "ann"
    assert server(tmp_path, cookie, TAGMILL_SECRET_KEY="another") != "ann"


def test_the_first_server_stores_its_key_and_a_given_one_stays(
    db: None, settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAGMILL_SECRET_KEY", "")
    signing.share(Config(secret_key="given"))
    assert not SigningKey.objects.exists()
    signing.share(Config(secret_key=""))
    first = SigningKey.objects.get().key
    signing.share(Config(secret_key=""))
    assert SigningKey.objects.get().key == first == os.environ["TAGMILL_SECRET_KEY"]
