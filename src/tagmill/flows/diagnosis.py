"""What is wrong with the database, in sentences that say what to do. It is only read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tagmill import sql
from tagmill.fleet import packing

OLDEST_VERSION, NEWEST_VERSION = 14, 18
# Transaction ids run out at two thousand million; PostgreSQL itself cleans up at 200 million.
MAX_FROZEN_AGE = 1_000_000_000
# A client's clock is compared by people with times that the database gives.
MAX_CLOCK_SECONDS = 5.0
# As many of each are named.
MAX_NAMED = 5


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """`todo` is empty where nothing is to be done."""

    check: str
    state: State
    message: str
    todo: str = ""


@dataclass(frozen=True)
class Limits:
    """From when on something is worth a word."""

    lock_seconds: float = 10.0
    transaction_seconds: float = 600.0
    dead_rows: int = 50_000
    lease_seconds: float = 120.0


class Facts(NamedTuple):
    version: int
    is_replica: bool
    fsync: bool
    commits_wait: bool
    autovacuum: bool
    encoding: str
    clock: float
    bytes: int
    frozen_age: int
    connections: int


class _Waiting(NamedTuple):
    pid: int
    blocked_by: list[int]
    seconds: float


class _Open(NamedTuple):
    pid: int
    state: str
    seconds: float


class _Bloated(NamedTuple):
    table: str
    live: int
    dead: int


def database(needed: int, limits: Limits) -> list[Finding]:
    """`needed` is how many connections one server may want. No table of ours is read. Raises
    Django's errors where the database does not answer."""
    (facts,) = sql.named(Facts, __file__, "server_facts", {})
    judged = of_server(facts, needed, sql.max_connections())
    return [*judged, *_locks(limits), *_bloat(limits), _rights()]


def of_server(facts: Facts, needed: int, allowed: int) -> list[Finding]:
    """What follows from the server's own words. `allowed` is how many connections it takes."""
    return [
        _version(facts),
        *_durability(facts),
        _connections(facts, needed, allowed),
        *_vacuum(facts),
        _clock(facts),
    ]


def _version(facts: Facts) -> Finding:
    major = facts.version // 10_000
    if not OLDEST_VERSION <= major <= NEWEST_VERSION:
        message = f"PostgreSQL {major} is not one that Tagmill is tested with"
        todo = f"use PostgreSQL {OLDEST_VERSION} to {NEWEST_VERSION}"
    elif facts.is_replica:
        message = "DATABASE_URL leads to a replica, which cannot be written"
        todo = "name both hosts and target_session_attrs=read-write (docs/backup.md)"
    elif facts.encoding != "UTF8":
        message = f"the database's encoding is {facts.encoding}: not every document can be stored"
        todo = "make one with ENCODING 'UTF8' TEMPLATE template0, and migrate there"
    else:
        said = f"PostgreSQL {major}, {facts.bytes / 2**20:,.0f} MiB of data"
        return Finding("database", State.OK, said)
    return Finding("database", State.FAILURE, message, todo)


def _durability(facts: Facts) -> Iterator[Finding]:
    if not facts.fsync:
        yield Finding(
            "durability",
            State.FAILURE,
            "fsync is off: a crash of the machine can destroy the database",
            "ALTER SYSTEM SET fsync = on, and reload",
        )
    elif not facts.commits_wait:
        yield Finding(
            "durability",
            State.WARNING,
            "synchronous_commit is off: a crash loses uploads that were accepted",
            "switch it on, or run `restored` after each crash (docs/backup.md)",
        )


def _connections(facts: Facts, needed: int, allowed: int) -> Finding:
    said = f"max_connections leaves {allowed}, one server may want {needed}"
    if needed > allowed:
        return Finding(
            "connections",
            State.FAILURE,
            said,
            "raise max_connections, or lower TAGMILL_THREADS or TAGMILL_PROCESSES",
        )
    if needed > allowed - facts.connections:
        return Finding(
            "connections",
            State.WARNING,
            f"{said}, and {facts.connections} are taken",
            "look that all servers together fit: raise max_connections for one more server",
        )
    return Finding("connections", State.OK, f"{said}, {facts.connections} are taken")


def _locks(limits: Limits) -> Iterator[Finding]:
    parameters = {"seconds": limits.lock_seconds, "limit": MAX_NAMED}
    waiting = sql.named(_Waiting, __file__, "waiting_for_locks", parameters)
    for row in waiting:
        blockers = ", ".join(map(str, row.blocked_by))
        yield Finding(
            "locks",
            State.WARNING,
            f"process {row.pid} waits {row.seconds:.0f} s for a lock of {blockers or 'somebody'}",
            f"pg_stat_activity says what it does; SELECT pg_terminate_backend({blockers}) ends it",
        )
    parameters = {"seconds": limits.transaction_seconds, "limit": MAX_NAMED}
    for found in sql.named(_Open, __file__, "open_transactions", parameters):
        yield Finding(
            "locks",
            State.WARNING,
            f"process {found.pid} ({found.state}) has a transaction open for {found.seconds:.0f} s",
            f"end it: SELECT pg_terminate_backend({found.pid}); until then nothing is vacuumed",
        )
    for gid in sql.values(__file__, "prepared_transactions", {"limit": MAX_NAMED}):
        yield Finding(
            "locks",
            State.WARNING,
            f"the prepared transaction {gid!r} holds its locks for ever",
            f"ROLLBACK PREPARED '{gid}'",
        )
    if not waiting:
        yield Finding("locks", State.OK, "nobody waits for a lock for long")


def _vacuum(facts: Facts) -> Iterator[Finding]:
    if not facts.autovacuum:
        yield Finding(
            "bloat",
            State.FAILURE,
            "autovacuum is off: tables grow with every change",
            "ALTER SYSTEM SET autovacuum = on, and reload",
        )
    if facts.frozen_age > MAX_FROZEN_AGE:
        yield Finding(
            "bloat",
            State.FAILURE,
            f"transactions run out: the oldest is {facts.frozen_age:,} behind, the end is at 2**31",
            "end old transactions and run VACUUM (FREEZE)",
        )


def _bloat(limits: Limits) -> Iterator[Finding]:
    parameters = {"rows": limits.dead_rows, "limit": MAX_NAMED}
    bloated = sql.named(_Bloated, __file__, "bloated_tables", parameters)
    for row in bloated:
        yield Finding(
            "bloat",
            State.WARNING,
            f"{row.table} has {row.dead:,} dead rows and {row.live:,} live ones",
            f"VACUUM {row.table}; if it comes again, look for transactions that stay open",
        )
    for name in sql.values(__file__, "held_wal", {"limit": MAX_NAMED}):
        yield Finding(
            "bloat",
            State.WARNING,
            f"nobody reads the replication slot {name}: the log is kept until the disk is full",
            f"start its replica, or SELECT pg_drop_replication_slot('{name}')",
        )
    if not bloated:
        yield Finding("bloat", State.OK, "no table has more dead rows than live ones")


def _clock(facts: Facts) -> Finding:
    apart = abs(facts.clock - time.time())
    if apart > MAX_CLOCK_SECONDS:
        return Finding(
            "clock",
            State.WARNING,
            f"this clock and the database's are {apart:.0f} s apart",
            "run a time service (chrony, systemd-timesyncd) on both",
        )
    return Finding("clock", State.OK, f"{apart:.1f} s from the database's")


def _rights() -> Finding:
    lacking = sql.values(__file__, "tables_without_rights", {"limit": MAX_NAMED})
    if lacking:
        return Finding(
            "rights",
            State.FAILURE,
            f"the role of DATABASE_URL may not read and write {', '.join(lacking)}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO it, or let it"
            " own the tables, as migrations need it",
        )
    return Finding("rights", State.OK, "the role may read and write every table")


def tasks(limits: Limits) -> Finding:
    """Whether any server runs the periodic tasks."""
    (overdue,) = sql.values(__file__, "overdue_leases", {"seconds": limits.lease_seconds})
    if overdue:
        return Finding(
            "tasks",
            State.FAILURE,
            f"{overdue} leases ended long ago and were not taken back: no periodic tasks run",
            "start a server without --no-maintenance and with TAGMILL_MAINTENANCE=true",
        )
    return Finding("tasks", State.OK, "leases that end are taken back")


def documents() -> Finding:
    """How documents are stored, and whether all could be read when they were packed."""
    found = packing.figures()
    if found.damaged:
        return Finding(
            "documents",
            State.FAILURE,
            f"{found.damaged} documents could not be read when documents were last packed",
            "see docs/documents.md: the server's log names them, with the action `damaged`",
        )
    said = f"{found.bytes / 2**20:,.0f} MiB at rest"
    if found.left:
        said += f", about {found.left:,} are still to be packed"
    return Finding("documents", State.OK, said)
