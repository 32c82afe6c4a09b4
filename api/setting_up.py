"""`setup`: from an empty database to what a server and a worker need to start."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.contrib.auth.models import User

from api import users
from tagmill import database
from tagmill.config import Config
from tagmill.errors import ConfigurationError
from tagmill.work import workers

# What an environment file takes as it is; the rest is quoted as systemd and shells read it.
PLAIN = re.compile(r"[\w@%+=:,./\[\]?&-]*")
SERVER_FILE, WORKER_FILE = "server.env", "worker.env"
# The token of the metrics alone, for Prometheus: it may be read by whoever may enter the directory.
METRICS_FILE = "metrics-token"


@dataclass(frozen=True)
class Wanted:
    """`host` is the name that clients use, behind `proxies` proxies; `server` is where workers find
    the server."""

    directory: Path
    admin: str = "admin"
    password: str = ""
    host: str = ""
    proxies: int = 0
    server: str = "http://127.0.0.1:8080"


@dataclass
class Done:
    """What was made. A password is there where it was made up, and shown this once."""

    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    password: str = ""


def run(config: Config, wanted: Wanted) -> Done:
    """The database has its migrations. What is there already stays as it is, so that this can be
    repeated. Raises ConfigurationError."""
    done = Done()
    if User.objects.filter(username=wanted.admin).exists():
        done.kept.append(f"the user {wanted.admin}")
    else:
        password = wanted.password or secrets.token_urlsafe(15)
        users.create(wanted.admin, password, "admin")
        done.password = "" if wanted.password else password
        done.made.append(f"the user {wanted.admin}, an admin")
    try:
        wanted.directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        token = secrets.token_urlsafe(24)
        _make(wanted.directory / SERVER_FILE, lambda: _server(config, wanted, token), done)
        if str(wanted.directory / SERVER_FILE) in done.made:
            (wanted.directory / METRICS_FILE).write_text(token)
        _make(wanted.directory / WORKER_FILE, lambda: _worker(wanted), done)
    except OSError as error:
        raise ConfigurationError(
            f"{wanted.directory} cannot be written ({error.strerror}): run this as root, or name"
            " another in --directory"
        ) from None
    return done


def _make(path: Path, variables: Callable[[], Iterator[tuple[str, str]]], done: Done) -> None:
    """A file that nobody else may read. The variables are asked for only where it is made."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        done.kept.append(str(path))
        return
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{name}={quoted(value)}\n" for name, value in variables())
    done.made.append(str(path))


def _server(config: Config, wanted: Wanted, token: str) -> Iterator[tuple[str, str]]:
    if database.is_embedded(config):
        yield "TAGMILL_VAR", str(config.var.resolve())
    else:
        yield "DATABASE_URL", config.database_url
    if wanted.host:
        yield "TAGMILL_ALLOWED_HOSTS", f"{wanted.host},localhost,127.0.0.1,[::1]"
    if wanted.proxies:
        yield "TAGMILL_TRUSTED_PROXIES", str(wanted.proxies)
    yield "TAGMILL_METRICS_TOKEN", token


def _worker(wanted: Wanted) -> Iterator[tuple[str, str]]:
    # A token of that name may be there of a file that was lost; names are of one token each.
    _, token = workers.issue_token(f"setup-{secrets.token_hex(4)}", "all")
    yield "TAGMILL_WORKER_SERVER", wanted.server
    yield "TAGMILL_WORKER_TOKEN", token


def quoted(value: str) -> str:
    """A value for systemd's EnvironmentFile and for a shell. Raises ConfigurationError."""
    if "\n" in value:
        raise ConfigurationError("a setting with a line break has no place in an environment file")
    if PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'
