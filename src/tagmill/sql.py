"""Named queries: an app has one file of them, `queries.sql`; `-- name: <name>` begins a query."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from django.db import connection
from django.db.backends.postgresql.base import ServerBindingCursor
from psycopg.pq import Format

Row = TypeVar("Row")

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@functools.lru_cache(maxsize=1024)
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
    """As `run`, with parameters as `rows_binary` sends them."""
    return _bound(module_file, name, parameters)[0]


def bound(
    row: Callable[..., Row], module_file: str, name: str, parameters: dict[str, Any]
) -> list[Row]:
    """As `named`, for hot paths: the server binds the parameters, so that a statement which comes
    again is parsed and planned once a connection, and answers in binary."""
    found = _bound(module_file, name, parameters, is_binary=True)[1]
    return [row(*values) for values in found]


def rows_binary(module_file: str, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """As `rows`, with parameters that the server binds. Those that the query names as `%(name)b` go
    over as they are.

    Django's cursor writes parameters into the text of the query, and looks for quotes in every
    element of an array: a quarter of a second for 4 MB of XML, and nearly two for 4,096 bitmaps.
    """
    return _bound(module_file, name, parameters)[1]


def _bound(
    module_file: str, name: str, parameters: dict[str, Any], *, is_binary: bool = False
) -> tuple[int, list[tuple[Any, ...]]]:
    # The stubs know neither what wraps a cursor nor that this one takes a connection.
    database, cursor_of = cast(Any, connection), cast(Any, ServerBindingCursor)
    database.ensure_connection()
    with database.wrap_database_errors:
        server_side = cursor_of(database.connection)
        server_side.format = Format.BINARY if is_binary else Format.TEXT
    with database._prepare_cursor(server_side) as cursor:
        cursor.execute(query(module_file, name), parameters)
        rows = list(cursor.fetchall()) if cursor.description else []
        return int(cursor.rowcount), rows


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
