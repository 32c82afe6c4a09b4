"""Named queries: an app has one file of them, `queries.sql`; `-- name: <name>` begins a query."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from django.db import connection
from django.db.backends.postgresql.base import ServerBindingCursor

Row = TypeVar("Row")

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def query(module_file: str, name: str) -> str:
    """The text of a named query of the app of a module. Pass `__file__`. Raises KeyError."""
    return _queries(Path(module_file).parent)[name]


@functools.cache
def _queries(app: Path) -> dict[str, str]:
    _, *parts = NAME.split((app / "queries.sql").read_text())
    names, texts = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{app / 'queries.sql'} has a query twice")
    return {name: text.strip() + "\n" for name, text in zip(names, texts, strict=True)}


def run_binary(module_file: str, name: str, parameters: dict[str, Any]) -> int:
    """As `run`, with parameters that the server binds. Those that the query names as `%(name)b` go
    over as they are.

    Django's cursor writes parameters into the text of the query, and looks for quotes in every
    element of an array: a quarter of a second for 4 MB of XML, and nearly two for 4,096 bitmaps.
    """
    # The stubs know neither what wraps a cursor nor that this one takes a connection.
    database, bound = cast(Any, connection), cast(Any, ServerBindingCursor)
    database.ensure_connection()
    with database.wrap_database_errors:
        server_side = bound(database.connection)
    with database._prepare_cursor(server_side) as cursor:
        cursor.execute(query(module_file, name), parameters)
        return int(cursor.rowcount)


def ask() -> None:
    """Raises DatabaseUnavailable when there is no answer."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def max_connections() -> int:
    """How many connections the database allows to everybody but superusers."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(setting::int * CASE name WHEN 'max_connections' THEN 1 ELSE -1 END)"
            " FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections')"
        )
        ((allowed,),) = cursor.fetchall()
    return int(allowed)


def rows(module_file: str, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """All rows that a named query returns."""
    with connection.cursor() as cursor:
        cursor.execute(query(module_file, name), parameters)
        return list(cursor.fetchall()) if cursor.description else []


def named(
    row: Callable[..., Row], module_file: str, name: str, parameters: dict[str, Any]
) -> list[Row]:
    """All rows that a named query returns, each as a `row`, a NamedTuple with the query's columns
    in its order."""
    return [row(*found) for found in rows(module_file, name, parameters)]


def values(module_file: str, name: str, parameters: dict[str, Any]) -> list[Any]:
    """The column of a named query that returns one."""
    return [value for (value,) in rows(module_file, name, parameters)]


def run(module_file: str, name: str, parameters: dict[str, Any]) -> int:
    """Run a named query for its effect; how many rows it touched."""
    with connection.cursor() as cursor:
        cursor.execute(query(module_file, name), parameters)
        return int(cursor.rowcount)
