"""Locks, and the one order in which a transaction takes them.

Whoever locks rows does it here: what is locked is sorted as everybody sorts it, and `watchers` (a
test) see that no transaction goes back in the order of `Lock`. Rows are locked as weakly as does:
two that only refer to a row (foreign keys are checked when a transaction commits) never wait, and
neither waits for who changes it. What was read before a lock is read again under it.

Whoever refers to partitions that it has not locked itself (leases, targets, waiting jobs) holds the
FLEET, which costs nothing until a partition is to be deleted: that is done alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model, QuerySet

from tagmill import sql

Row = TypeVar("Row", bound=Model)
Named = TypeVar("Named")


class Lock(enum.IntEnum):
    """What is locked, in the order in which locks are taken. NODE rows are covered by their
    partition's lock; the JOB of a lease is finished under the lease's lock, and waiting jobs come
    last and once."""

    FLEET = 1
    HOUSEKEEPING = 2
    CLIENT = 3
    WORKER = 4
    MEMBERSHIP = 5
    CLUSTER = 6
    PARTITION = 7
    EXPRESSION = 8
    MATCH = 9
    LEASE = 10
    TAG = 11
    PREVIEW = 12
    REBUILD = 13
    JOB = 14


# By table: its place in the order, and by what its rows are sorted. Matches and jobs are locked by
# named queries alone.
KEYS = {
    "worker": (Lock.WORKER, "id"),
    "cluster": (Lock.CLUSTER, "id"),
    "partition": (Lock.PARTITION, "id"),
    "expression": (Lock.EXPRESSION, "id"),
    "lease": (Lock.LEASE, "partition_id"),
    "tag": (Lock.TAG, "id"),
    "preview": (Lock.PREVIEW, "id"),
    "rebuild": (Lock.REBUILD, "id"),
}
# The first half of the keys of advisory locks; the second is the Lock.
NAMESPACE = 0x7A6D11

watchers: list[Callable[[Lock], None]] = []


def fleet(*, alone: bool = False) -> None:
    """Until the transaction ends no partition is deleted; `alone`: so that one can be."""
    _advisory(Lock.FLEET, "pg_advisory_xact_lock" + ("" if alone else "_shared"))


def housekeeping() -> None:
    """One at a time deletes what is old: two that delete the same rows would meet in no order."""
    _advisory(Lock.HOUSEKEEPING, "pg_advisory_xact_lock")


def membership() -> None:
    """One at a time says who should hold which partition."""
    _advisory(Lock.MEMBERSHIP, "pg_advisory_xact_lock")


def rows(wanted: QuerySet[Row], *, to_delete: bool = False, skip_locked: bool = False) -> list[Row]:
    """Lock these rows, and return them as they are then. `to_delete` locks them against new
    references, too, which the change of a unique name also needs."""
    kind, key = KEYS[wanted.model._meta.db_table]
    taking(kind)
    locking = wanted.order_by(key).select_for_update(
        no_key=not to_delete, skip_locked=skip_locked, of=("self",)
    )
    return list(locking)


def query(kind: Lock, module_file: str, name: str, parameters: dict[str, Any]) -> list[Any]:
    """The rows of a named query that locks them, sorted."""
    taking(kind)
    return sql.rows(module_file, name, parameters)


def bound(
    kind: Lock,
    row: Callable[..., Named],
    module_file: str,
    name: str,
    parameters: dict[str, Any],
) -> list[Named]:
    """As `query`, for hot paths (`sql.bound`)."""
    taking(kind)
    return sql.bound(row, module_file, name, parameters)


def _advisory(kind: Lock, function: str) -> None:
    taking(kind)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(%s, %s)", [NAMESPACE, int(kind)])


def taking(kind: Lock) -> None:
    """Call it before a statement that locks by itself."""
    for watcher in watchers:
        watcher(kind)
