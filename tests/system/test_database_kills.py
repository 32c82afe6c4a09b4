"""An administrator ends every connection of the database, again and again."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from tests.system.conftest import System

ROUNDS = 3
DISPLAY = "//node[@class='display']"


def end_connections(system: System, holder: psycopg.Connection) -> None:
    """All but the test's own."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid NOT IN (pg_backend_pid(), %s)"
            " AND datname = current_database() AND backend_type = 'client backend'",
            [holder.info.backend_pid],
        )


@pytest.mark.proof
def test_connections_that_die_while_results_are_stored_cost_a_few_retries(system: System) -> None:
    system.stack.start_workers(1)
    names = []
    for number in range(ROUNDS):
        names.append(f"tag-{number}")
        with psycopg.connect(system.url) as holder:
            holder.execute("SELECT FROM partition FOR NO KEY UPDATE")
            system.tag(names[-1], f"{DISPLAY}[position() > {number}]")
            system.wait(
                lambda pid=holder.info.backend_pid: system.waits_for(
                    pid, "%FROM partition%FOR NO KEY UPDATE%"
                )
            )
            end_connections(system, holder)
        system.wait(lambda: all(system.state(name) == "ready" for name in names))
    system.assert_true(*names)
