"""A database of its own for a benchmark, dropped afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
from django.core.management import call_command
from django.db import connection, connections
from psycopg import sql

from tagmill import config


@contextlib.contextmanager
def scratch_database() -> Iterator[str]:
    """Django and every process started meanwhile use a new, migrated database; yields its URL."""
    original = config.load().database_url
    name = f"tagmill_bench_{os.getpid()}"
    settings = connections["default"].settings_dict
    before = settings["NAME"]
    _administer(original, "CREATE DATABASE {}", name)
    try:
        url = urlunsplit(urlsplit(original)._replace(path=f"/{name}"))
        os.environ["DATABASE_URL"] = url
        connection.close()
        settings["NAME"] = name
        call_command("migrate", verbosity=0)
        yield url
    finally:
        connections.close_all()
        settings["NAME"] = before
        os.environ["DATABASE_URL"] = original
        _administer(original, "DROP DATABASE {} WITH (FORCE)", name)


def _administer(url: str, statement: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(sql.SQL(statement).format(sql.Identifier(name)))
