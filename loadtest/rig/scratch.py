"""A database of its own for a benchmark, dropped afterwards."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
from django.core.management import call_command
from django.db import connection, connections
from psycopg import sql

from tagmill import config, database

PREFIX = "tagmill_bench_"


@contextlib.contextmanager
def scratch_database() -> Iterator[str]:
    """Django and every process started meanwhile use a new, migrated database; yields its URL."""
    original = config.load().database_url
    name = f"{PREFIX}{os.getpid()}"
    drop_leftovers(original)
    _administer(original, "CREATE DATABASE {}", name)
    try:
        with using(urlunsplit(urlsplit(original)._replace(path=f"/{name}"))) as url:
            call_command("migrate", verbosity=0)
            yield url
    finally:
        _administer(original, "DROP DATABASE {} WITH (FORCE)", name)


@contextlib.contextmanager
def using(url: str) -> Iterator[str]:
    """Django and every process started meanwhile use this database."""
    original = config.load().database_url
    settings = connections["default"].settings_dict
    before = dict(settings)
    os.environ["DATABASE_URL"] = url
    config.load.cache_clear()
    connection.close()
    settings.update(database.django_settings(config.load()))
    try:
        yield url
    finally:
        connections.close_all()
        settings.update(before)
        os.environ["DATABASE_URL"] = original
        # What was loaded meanwhile names the database that goes: a bench may make several.
        config.load.cache_clear()


def _administer(url: str, statement: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(sql.SQL(statement).format(sql.Identifier(name)))


def drop_leftovers(url: str) -> None:
    """The databases of runs that were killed. A user's server may serve other machines, too, whose
    processes are not to be seen here: theirs are told by their connections."""
    with psycopg.connect(url, autocommit=True) as administrator:
        names = administrator.execute(
            "SELECT datname FROM pg_database WHERE datname ~ %s AND NOT EXISTS"
            " (SELECT FROM pg_stat_activity activity WHERE activity.datname = pg_database.datname)",
            [f"^{PREFIX}[0-9]+$"],
        ).fetchall()
        for (name,) in names:
            found = re.search(r"[0-9]+$", name)
            if found and not psutil.pid_exists(int(found[0])):
                drop = sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name))
                # Whoever connects at this moment is using it.
                with contextlib.suppress(psycopg.errors.ObjectInUse):
                    administrator.execute(drop)
