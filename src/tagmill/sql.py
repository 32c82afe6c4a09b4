"""Named queries: `sql/<name>.sql` beside the module that runs them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from django.db import connection


@functools.cache
def query(module_file: str, name: str) -> str:
    """The text of a named query. Pass `__file__`."""
    return (Path(module_file).parent / "sql" / f"{name}.sql").read_text()


def rows(module_file: str, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """All rows that a named query returns."""
    with connection.cursor() as cursor:
        cursor.execute(query(module_file, name), parameters)
        return list(cursor.fetchall()) if cursor.description else []


def run(module_file: str, name: str, parameters: dict[str, Any]) -> int:
    """Run a named query for its effect; how many rows it touched."""
    with connection.cursor() as cursor:
        cursor.execute(query(module_file, name), parameters)
        return int(cursor.rowcount)
