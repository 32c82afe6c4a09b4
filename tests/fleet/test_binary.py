"""Documents and bitmaps go to the database as they are, and not as text of a statement."""

from __future__ import annotations

import pytest

from tagmill.fleet import clusters
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
