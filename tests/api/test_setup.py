"""`setup` makes what a server and a worker need, once, and leaves what is there."""

from __future__ import annotations

import io
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command

from api import setting_up
from tagmill.config import Config
from tagmill.errors import ConfigurationError
from tagmill.work import workers
from tagmill.work.models import WorkerToken


def setup(directory: Path, *options: str) -> str:
    output = io.StringIO()
    call_command("setup", "--directory", str(directory), *options, stdout=output)
    return output.getvalue()


def read(path: Path) -> dict[str, str]:
    """As a shell reads it."""
    assert path.stat().st_mode & 0o777 == 0o600
    shell = ["/bin/sh", "-c", f"set -a; . {shlex.quote(str(path))}; env -0"]
    printed = subprocess.run(shell, env={}, capture_output=True, check=True, timeout=30).stdout
    return dict(line.split("=", 1) for line in printed.decode().split("\0") if line)


def test_it_makes_an_admin_a_token_and_the_files_of_the_units(
    db: None, tmp_path: Path, configure: Any
) -> None:
    said = setup(tmp_path / "etc", "--host", "tags.example.com", "--proxies", "1")
    password = said.split("shown this once: ")[1].split()[0]
    user = authenticate(username="admin", password=password)
    assert user is not None and list(user.groups.values_list("name", flat=True)) == ["admin"]
    server = read(tmp_path / "etc" / "server.env")
    assert server["TAGMILL_ALLOWED_HOSTS"].startswith("tags.example.com,")
    assert server["TAGMILL_TRUSTED_PROXIES"] == "1" and len(server["TAGMILL_METRICS_TOKEN"]) > 20
    assert (tmp_path / "etc" / "metrics-token").read_text() == server["TAGMILL_METRICS_TOKEN"]
    worker = read(tmp_path / "etc" / "worker.env")
    assert workers.authenticate(worker["TAGMILL_WORKER_TOKEN"]) is not None
    assert worker["TAGMILL_WORKER_SERVER"] == "http://127.0.0.1:8080"


def test_what_is_there_stays(db: None, tmp_path: Path) -> None:
    setup(tmp_path)
    before = [(tmp_path / name).read_text() for name in ("server.env", "worker.env")]
    said = setup(tmp_path)
    assert [(tmp_path / name).read_text() for name in ("server.env", "worker.env")] == before
    assert said.count("kept") == 3 and "made" not in said and "password" not in said
    assert WorkerToken.objects.count() == 1


def test_a_password_is_read_where_it_is_asked_for(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("123\n"))
    with pytest.raises(CommandError, match="too short"):
        setup(tmp_path, "--password-stdin")
    monkeypatch.setattr("sys.stdin", io.StringIO("a long sentence of mine\n"))
    said = setup(tmp_path, "--password-stdin", "--admin", "ann")
    assert authenticate(username="ann", password="a long sentence of mine")
    assert "a long sentence" not in said


def test_an_url_with_every_sign_arrives_in_the_environment(db: None, tmp_path: Path) -> None:
    url = "postgresql://me:p\"a$s`\\'@host/tags?options=-c%20jit%3Doff"
    setting_up.run(Config(DATABASE_URL=url), setting_up.Wanted(tmp_path))
    assert read(tmp_path / "server.env")["DATABASE_URL"] == url
    with pytest.raises(ConfigurationError, match="line break"):
        setting_up.quoted("a\nb")


def test_a_directory_that_cannot_be_written_is_said(db: None, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="--directory"):
        setting_up.run(Config(), setting_up.Wanted(tmp_path / "file"))
