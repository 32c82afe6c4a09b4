"""How much of each partition waits for evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from django.db import connection

QUERY = (Path(__file__).parent / "sql" / "partition_staleness.sql").read_text()


def stale_matches(partitions: Iterable[int]) -> dict[int, int]:
    """{partition id: matches that are not fresh}, 0 included. One query."""
    wanted = list(partitions)
    with connection.cursor() as cursor:
        cursor.execute(QUERY, [wanted])
        return dict.fromkeys(wanted, 0) | dict(cursor.fetchall())
