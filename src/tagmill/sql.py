"""Named queries: an app has one file of them, `queries.sql`; `-- name: <name>` begins a query."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.backends.postgresql.base import ServerBindingCursor
from psycopg import Pipeline
from psycopg.abc import Buffer
from psycopg.pq import Format
from psycopg.types.array import ListDumper
from psycopg.types.datetime import TimestamptzLoader

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


def run_binary(module_file: str, name: str, parameters: dict[str, Any]) -> None:
    """Run a named query for its effect, with parameters as `bound` sends them."""
    with _bound(module_file, name, parameters):
        pass


def bound(
    row: Callable[..., Row], module_file: str, name: str, parameters: dict[str, Any]
) -> list[Row]:
    """As `named`, for hot paths: the server binds the parameters, so that a statement which comes
    again is parsed and planned once a connection, and answers in binary. A date is aware, in the
    connection's time zone. Parameters that the query names as `%(name)b` go over as they are.

    Django's cursor writes parameters into the text of the query, and looks for quotes in every
    element of an array: a quarter of a second for 4 MB of XML, and nearly two for 4,096 bitmaps.
    """
    with _bound(module_file, name, parameters) as cursor:
        return [row(*values) for values in cursor.fetchall()]


class DateLoader(TimestamptzLoader):
    """Reads what PostgreSQL sends where the connection's time zone is UTC. Django's own is written
    in Python and takes ten times as long: two thousand times for a page of a thousand rows."""

    # By which Django knows that it need not register another.
    timezone = UTC

    def load(self, data: Buffer) -> datetime:
        try:
            return datetime.fromisoformat(bytes(data).decode())
        except ValueError:
            # It says what is wrong with infinity, and with years before Christ.
            return super().load(data)


class NumbersDumper(ListDumper):
    """Writes a list of whole numbers at once. psycopg's own looks in each of them for what must be
    quoted: four milliseconds for the places of ten thousand nodes."""

    def dump(self, obj: list[Any]) -> Buffer | None:
        if obj and set(map(type, obj)) == {int}:
            return f"{{{str(obj)[1:-1]}}}".encode()
        return super().dump(obj)


def adapt(connection: Any, **_: Any) -> None:
    """A receiver of Django's `connection_created`."""
    connection.connection.adapters.register_loader("timestamptz", DateLoader)
    connection.connection.adapters.register_dumper(list, NumbersDumper)


@contextlib.contextmanager
def pipelined() -> Iterator[None]:
    """Statements whose rows nobody reads wait here, and go to the server with the next whose rows
    are read, or at the end: one round trip for all. An error of any of them arrives there, too.
    No savepoint may be made inside: after an error the server skips what comes until the end."""
    if not Pipeline.is_supported():
        yield
        return
    connection.ensure_connection()
    database = cast(Any, connection)
    with database.wrap_database_errors, database.connection.pipeline():
        yield


def is_pipelined() -> bool:
    """Whether this thread is inside of `pipelined`."""
    database = cast(Any, connection)
    return bool(database.connection.info.pipeline_status)


# The stubs know nothing of this class.
_ServerBindingCursor: Any = ServerBindingCursor


class _Kept(_ServerBindingCursor):  # type: ignore[misc]
    """A cursor of one query, for all the times that it runs on a connection. A new cursor for each
    takes as long as everything else that the client does for a small statement: it finds out anew
    how each parameter is sent, and each column is read."""

    def __init__(self, link: Any) -> None:
        super().__init__(link)
        self.format = Format.BINARY

    def forget(self) -> None:
        """Release the rows, which may be megabytes."""
        self._reset(reset_query=False)


class _Cursors:
    """The kept cursors of a connection to the database, by their queries: as many as these are."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.of: dict[str, Any] = {}


@contextlib.contextmanager
def _bound(module_file: str, name: str, parameters: dict[str, Any]) -> Iterator[Any]:
    """A cursor that has run the query."""
    # The stubs know neither what wraps a cursor nor that this one takes a connection.
    database = cast(Any, connections[DEFAULT_DB_ALIAS])
    # As Django's own cursor: it may be the first statement on a connection that broke meanwhile.
    database.close_if_health_check_failed()
    database.ensure_connection()
    text = query(module_file, name)
    with database.wrap_database_errors:
        cursor = _cursor(database, text)
    try:
        cursor.execute(text, parameters)
        yield cursor
    finally:
        cursor.cursor.forget()


def _cursor(database: Any, text: str) -> Any:
    """The cursor of this query on the connection that there is now, as Django wraps cursors. In a
    pipeline a new one, since other results of the query may be under way; and where statements are
    logged, which another wrapper does."""
    link = database.connection
    if database.queries_logged or link.pgconn.pipeline_status:
        return database._prepare_cursor(_Kept(link))
    cursors = database.__dict__.get(_CURSORS)
    if cursors is None or cursors.link is not link:
        cursors = database.__dict__[_CURSORS] = _Cursors(link)
    if text not in cursors.of:
        cursors.of[text] = database._prepare_cursor(_Kept(link))
    return cursors.of[text]


_CURSORS = "tagmill_cursors"


@contextlib.contextmanager
def snapshot() -> Iterator[None]:
    """What is read inside is as of one moment, and nothing is written. Inside of a transaction that
    is open already, that one says."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


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
        # In a pipeline there is no description before the rows are asked for.
        has_rows = cursor.description or is_pipelined()
        return list(cursor.fetchall()) if has_rows else []


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
