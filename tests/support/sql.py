"""SQL, plans, and the URL of the test's database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connection

from tagmill import locks

# What the migrations themselves store.
KEPT = {
    *("django_migrations", "django_content_type"),
    *("auth_permission", "auth_group", "auth_group_permissions"),
}


def execute(statement: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, list(parameters))
        return list(cursor.fetchall()) if cursor.description else []


def filled_tables() -> list[str]:
    """The tables that tests write to, as SQL names them. The audit is the last: it gets a row for
    what is deleted from others."""
    names = set(connection.introspection.table_names()) - KEPT - {"audit_event"}
    return [connection.ops.quote_name(name) for name in [*sorted(names), "audit_event"]]


def empty() -> None:
    """Delete all that a test wrote. A server that tests share may be at the last request of a page
    that is gone: what it locks, this waits for in the same order."""
    locked = ", ".join(sorted(locks.KEYS, key=lambda name: locks.KEYS[name][0]))
    deletions = "; ".join(f"DELETE FROM {name}" for name in filled_tables())
    execute(f"LOCK TABLE {locked} IN EXCLUSIVE MODE; {deletions}")


def plan(statement: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The root of EXPLAIN (FORMAT JSON)."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
        row = cursor.fetchone()
    found = row[0] if not isinstance(row[0], str) else json.loads(row[0])
    root: dict[str, Any] = found[0]["Plan"]
    return root


def scanned(root: dict[str, Any]) -> set[str]:
    """The tables that a plan reads from one end to the other."""
    here = {root["Relation Name"]} if root["Node Type"] == "Seq Scan" else set()
    return here.union(*(scanned(child) for child in root.get("Plans", [])))


def database_url() -> str:
    """The test database, for another process."""
    found = connection.settings_dict
    options = urlencode(
        {key: value for key, value in found["OPTIONS"].items() if key != "prepare_threshold"}
    )
    host = found["HOST"]
    user = quote(found["USER"] or "", safe="")
    password = f":{quote(found['PASSWORD'], safe='')}" if found["PASSWORD"] else ""
    port = f":{found['PORT']}" if found["PORT"] else ""
    if host.startswith("/"):
        where = urlencode({"host": host})
        return f"postgresql://{user}{password}@{port}/{found['NAME']}?{options}&{where}"
    return f"postgresql://{user}{password}@{host}{port}/{found['NAME']}?{options}"
