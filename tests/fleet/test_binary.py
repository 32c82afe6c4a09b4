"""Documents and bitmaps go to the database as they are, and not as text of a statement; dates come
from it by a quick reader of ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, connection, connections
from django.test.utils import CaptureQueriesContext
from psycopg import pq
from psycopg.types.array import ListDumper

from tagmill import sql
from tagmill.fleet import batches, clusters
from tagmill.fleet.models import Cluster, DocumentDictionary
from tagmill.tags import tags
from tests.support.fleet import HAS_GPU, put
from tests.support.sql import execute
from tests.support.workers import a_worker, work

pytestmark = pytest.mark.django_db

NOTE = """
CREATE TEMP TABLE statement (relation text, bytes int);
CREATE FUNCTION pg_temp.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO statement VALUES (TG_TABLE_NAME, octet_length(current_query()));
    RETURN NULL;
END $$;
"""
TIMESTAMPTZ = 1184
RATIO = {"data": b"d", "ratio": 2.0, "ratio_now": 2.0}
TABLES = ("document", "match", "match_change")
# The longest of these statements, with the comment before it.
MAX_TEXT = 1500


def test_what_is_large_is_no_text_of_a_statement() -> None:
    clusters.create("north")
    execute(NOTE)
    for table in TABLES:
        execute(
            f"CREATE TRIGGER note AFTER INSERT ON {table} FOR EACH STATEMENT "
            "EXECUTE FUNCTION pg_temp.note()"
        )
    for number in range(20):
        tags.create(f"gpu-{number}", definition=f"{HAS_GPU} and {number} = {number}")
    for name in "abc":
        put(name, cluster="north", xml=b"<node class='display'>" + b"x" * MAX_TEXT + b"</node>")
    work(a_worker())
    found = dict(execute("SELECT relation, max(bytes) FROM statement GROUP BY relation"))
    assert found.keys() == set(TABLES)
    assert max(found.values()) < MAX_TEXT, found


def test_dates_are_read_by_the_quick_reader() -> None:
    clusters.create("north")
    known = datetime(2026, 7, 1, 12, 30, 0, 123456, tzinfo=UTC)
    Cluster.objects.update(created_at=known)
    for found in (
        Cluster.objects.get().created_at,
        Cluster.objects.values_list("created_at", flat=True)[0],
        execute("SELECT '2026-07-01 14:30:00.123456+02'::timestamptz")[0][0],
    ):
        assert (found, found.utcoffset()) == (known, timedelta(0))
    assert connection.connection is not None
    loader = connection.connection.adapters.get_loader(TIMESTAMPTZ, pq.Format.TEXT)
    assert loader is sql.DateLoader
    for beyond in ("infinity", "0044-03-15 00:00:00+00 BC"):
        with pytest.raises(DataError):
            execute("SELECT %s::timestamptz", [beyond])


def test_a_query_that_comes_again_has_the_cursor_of_before_and_keeps_no_rows() -> None:
    def look() -> list[float]:
        return sql.bound(float, batches.__file__, "dictionary_ratio", {"id": 1})

    assert look() == []
    kept = vars(connections["default"])["tagmill_cursors"].of
    (cursor,) = (item for text, item in kept.items() if "SELECT ratio" in text)
    cluster = clusters.create("north")
    DocumentDictionary.objects.create(id=1, cluster=cluster, probe="lshw", version=1, **RATIO)
    assert look() == [2.0]
    assert kept[cursor.cursor._last_query] is cursor
    assert cursor.cursor.pgresult is None and cursor.cursor._results == []
    # Where results of several wait on the way, none may take the place of another.
    with sql.pipelined():
        assert look() == [2.0]
    with CaptureQueriesContext(connection) as captured:
        assert look() == [2.0]
    assert "SELECT ratio" in captured[0]["sql"]


@pytest.mark.django_db(transaction=True)
def test_another_connection_has_other_cursors() -> None:
    for _ in range(2):
        assert sql.bound(float, batches.__file__, "dictionary_ratio", {"id": 1}) == []
        connection.close()


@pytest.mark.parametrize(
    "given", [[], [0], [-1, 2**40], [1, None], [[1], [2]], [True, False], ["a,b", "{"]]
)
def test_lists_arrive_as_they_were_sent(given: list[Any]) -> None:
    kind = {bool: "boolean[]", str: "text[]"}.get(type(next(iter(given), None)), "bigint[]")
    assert execute(f"SELECT %s::{kind}", [given]) == [(given,)]


def test_numbers_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one by one, as psycopg writes lists."""
    monkeypatch.delattr(ListDumper, "_dump_list")
    assert execute("SELECT %s::bigint[]", [[1, -2]]) == [([1, -2],)]
