"""The template that PostgreSQL copies each new database from, with every migration applied.

The tests make a dozen databases: their own, one for each bench, the demo's. A copy takes a tenth of
the time that migrations take, and `migrate` then finds nothing to do.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

ROOT = Path(__file__).resolve().parents[2]
# No other number means anything: two runs of the tests in one checkout take turns.
LOCK = 1


def ensure(url: str) -> None:
    """Make the server's `template1` anew unless it has these very migrations. It must be a server
    that is the tests' own."""
    wanted = fingerprint()
    with psycopg.connect(_named(url, "postgres"), autocommit=True) as server:
        server.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        found = server.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
            " WHERE datname = 'template1'"
        ).fetchone()
        if found == (wanted,):
            return
        if found:
            server.execute("ALTER DATABASE template1 IS_TEMPLATE false")
            server.execute("DROP DATABASE template1")
        server.execute("CREATE DATABASE template1 TEMPLATE template0")
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": _named(url, "template1")},
            stderr=subprocess.DEVNULL,
            check=True,
        )
        # Only now: a run that was interrupted leaves none.
        server.execute(f"COMMENT ON DATABASE template1 IS '{wanted}'")


def fingerprint() -> str:
    """A digest of every migration there is, ours and those of what we use."""
    found = hashlib.sha256()
    for name in ("Django", "procrastinate"):
        found.update(f"{name} {version(name)}".encode())
    folders = ROOT.glob("src/tagmill/*/migrations/*"), ROOT.glob("api/migrations/*")
    for path in sorted(itertools.chain(*folders)):
        if path.is_file():
            found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()


def _named(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
