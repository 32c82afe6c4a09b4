"""The incarnation changes with the history of the database, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from tagmill.errors import IncarnationChanged, Invalid
from tagmill.fleet import batches, incarnation
from tagmill.tags import members, tags
from tests.support.fleet import north, the_partition
from tests.support.sql import execute
from tests.support.threads import done, in_thread, until_blocked

PAGE: Any = {"since": None, "after": None, "max_nodes": 10, "max_bytes": 1000}
# What differs in another history: the row came with the dump, or with the replica's copy.
ELSEWHERE = "UPDATE incarnation SET history = 'elsewhere'"


@pytest.mark.django_db
def test_it_stays_while_nothing_happens_and_changes_when_the_history_does() -> None:
    first = incarnation.current()
    assert incarnation.current() == first
    execute(ELSEWHERE)
    second = incarnation.current()
    assert second != first
    assert incarnation.current() == second


@pytest.mark.django_db
def test_it_names_the_timeline_that_is_written_now() -> None:
    incarnation.current()
    ((name, timeline),) = execute(
        "SELECT name, (SELECT timeline_id FROM pg_control_checkpoint()) FROM database_history"
    )
    system, written, *_ = name.split("/")
    assert int(written, 16) == timeline
    assert execute("SELECT system_identifier FROM pg_control_system()") == [(int(system),)]


@pytest.mark.django_db
def test_tables_that_are_filled_anew_are_another_history() -> None:
    """The tables as pg_restore --clean, or TRUNCATE and a restore of data alone, leave them."""
    before = incarnation.current()
    execute("TRUNCATE partition CASCADE")
    emptied = incarnation.current()
    execute("ALTER TABLE partition RENAME TO gone")
    execute("CREATE TABLE partition (LIKE gone INCLUDING ALL)")
    assert len({before, emptied, incarnation.current()}) == 3


@pytest.mark.django_db
def test_a_check_refuses_another_one_and_makes_none() -> None:
    named = str(incarnation.current())
    incarnation.check(named)
    execute(ELSEWHERE)
    with pytest.raises(IncarnationChanged):
        incarnation.check(named)
    assert execute("SELECT uuid FROM incarnation") == [(UUID(named),)]
    declared = incarnation.declare()
    incarnation.check(str(declared))
    assert incarnation.declare() != declared


@pytest.mark.django_db(transaction=True)
def test_of_two_who_see_it_first_one_makes_it() -> None:
    incarnation.current()
    execute(ELSEWHERE)
    together = threading.Barrier(3)

    def look(_: int) -> UUID:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        together.wait()
        return incarnation.current()

    execute("BEGIN")
    execute("SELECT FROM incarnation FOR UPDATE")
    looks = [in_thread(lambda: look(0)) for _ in range(2)]
    together.wait()
    # Both have seen that it is another history, and want the row.
    until_blocked(2)
    execute("COMMIT")
    found: Iterable[UUID] = {done(item) for item in looks}
    assert found == {incarnation.current()}


@pytest.mark.django_db
def test_a_batch_is_read_in_one_incarnation() -> None:
    north("a")
    named, partition = str(incarnation.current()), the_partition().id
    assert len(batches.read_in(named, partition, **PAGE).nodes) == 1
    execute(ELSEWHERE)
    with pytest.raises(IncarnationChanged):
        batches.read_in(named, partition, **PAGE)
    with pytest.raises(Invalid) as caught:
        batches.read_in("", partition, **PAGE)
    assert caught.value.extra["field"] == "incarnation"


@pytest.mark.django_db
def test_a_rev_that_has_not_been_yet_is_no_base() -> None:
    """Who names one has seen another history, which nothing in the database shows."""
    north("a")
    named, partition = str(incarnation.current()), the_partition()
    page = {**PAGE, "since": partition.rev}
    assert batches.read_in(named, partition.id, **page).rev == partition.rev
    with pytest.raises(Invalid) as caught:
        batches.read_in(named, partition.id, **{**page, "since": partition.rev + 1})
    assert caught.value.extra["field"] == "since"


@pytest.mark.django_db
def test_the_entity_tag_of_a_node_list_is_of_one_incarnation() -> None:
    tag = tags.create("manual")
    before = members.etag(tag)
    assert members.etag(tag) == before
    execute(ELSEWHERE)
    after = members.etag(tag)
    assert members.etag(tag) == after != before
