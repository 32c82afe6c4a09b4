"""`bench batch`: a whole group of documents in one answer, against each by itself, hot and cold.

The shape is that of an experiment that lost when it was cold: 1,000 small objects in eight groups,
read one after another by their client, and by one operation for each group. Each arm adds one thing
to the one before. Cold: PostgreSQL is stopped, its files are dropped from the page cache, it is
started, and the server is a new one. Hot: the same is read once more.
"""

from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.core.management import call_command
from django.db import connections
from rich.console import Console
from rich.table import Table

from api import tokens
from fixtures.generate import PROFILES
from loadtest.bench import (
    Bench,
    BenchError,
    Session,
    check_sizes,
    machine,
    names_of,
    progress,
    settings,
)
from loadtest.benches import batch_fleet, batch_reads
from loadtest.benches.batch_fleet import CONTIGUOUS, INTERLEAVED, PACKED, Layout
from loadtest.benches.batch_reads import Server, Traffic
from loadtest.rig import processes
from loadtest.rig.cold import ColdPostgres
from loadtest.rig.scratch import using
from loadtest.rig.stack import Stack, free_port, running
from tagmill.fleet import incarnation
from tagmill.work import workers

COLD, HOT = "cold", "hot"
FRESH, AGED = "fresh", "aged"
TABLES = (FRESH, AGED)
IN_FLIGHT = 16
# What a worker has under way: the next batch is asked for while this one is read.
AHEAD = 2
MAX_GROUPS = 64


@dataclass(frozen=True)
class Arm:
    """`in_flight`: how many requests at once. `is_packed`: documents come as they are at rest."""

    name: str
    layout: str
    in_flight: int
    is_single: bool = False
    is_packed: bool = False

    def read(self, server: Server, layout: Layout, known: dict[int, bytes]) -> Traffic:
        """`known`: the dictionaries that the client has by now."""
        if self.is_single:
            return batch_reads.singly(server, layout, self.in_flight)
        return batch_reads.by_groups(
            server, layout, self.in_flight, known, is_packed=self.is_packed
        )


SINGLE = Arm("single", INTERLEAVED, 1, is_single=True)
PIPELINED = Arm("pipelined", INTERLEAVED, IN_FLIGHT, is_single=True)
STRIDED = Arm("strided", INTERLEAVED, 1)
IN_SEQUENCE = Arm("contiguous", CONTIGUOUS, 1)
READ_AHEAD = Arm("read_ahead", CONTIGUOUS, AHEAD)
AT_REST = Arm("at_rest", PACKED, AHEAD, is_packed=True)
ARMS = {arm.name: arm for arm in (SINGLE, PIPELINED, STRIDED, IN_SEQUENCE, READ_AHEAD, AT_REST)}
# The ratios are about the worse of these: one is stored as XML, the other is as workers read today.
BATCHES = (READ_AHEAD, AT_REST)


@dataclass(frozen=True)
class Run:
    """One reading of everything. `blocks_read` by PostgreSQL, in `reads` and `read_ms`;
    `disk_bytes` of them, and what was read ahead, came from the disk."""

    round_trips: int
    seconds: float
    bytes: int
    blocks_read: int
    reads: int
    read_ms: float
    disk_bytes: int
    api_cpu: float
    database_cpu: float
    mismatches: int


class BatchBench(Bench):
    name = "batch"
    help = "documents one by one and by groups: round trips, blocks and seconds, hot and cold"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=1000)
        parser.add_argument("--groups", type=int, default=8, help="partitions that they are in")
        parser.add_argument("--profile", choices=PROFILES, default="lean")
        parser.add_argument("--repetitions", type=int, default=10, help="of each arm, alternated")
        names = list(ARMS)
        parser.add_argument("--arms", type=names_of(names), default=names, metavar="NAME,...")
        tables = list(TABLES)
        parser.add_argument("--tables", type=names_of(tables), default=tables, metavar="NAME,...")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "repetitions")
        groups = options["groups"]
        if not 1 <= groups <= MAX_GROUPS or options["nodes"] < 8 * groups:
            raise BenchError(f"--groups is 1 to {MAX_GROUPS}, of at least 8 nodes each")
        arms = [ARMS[name] for name in options["arms"]]
        slots = batch_fleet.slots_of(options["nodes"], groups)
        with ExitStack() as stack:
            postgres = stack.enter_context(ColdPostgres(session.log / "p"))
            stack.enter_context(settings(partition_slots=slots))
            stack.enter_context(using(postgres.url))
            call_command("migrate", verbosity=0)
            rig = Rig(session, postgres, options)
            found: dict[tuple[str, str, str], list[Run]] = {}
            for table in options["tables"]:
                rig.make(table)
                for key, run in rig.measured(arms, options["repetitions"]):
                    found.setdefault((*key, table), []).append(run)
        return result(options, found)

    def show(self, console: Console, result: dict[str, Any]) -> None:
        heads = ("arm", "state", "table", "round trips", "ms (spread)", "MB", "blocks", "waited ms")
        table = Table(*heads, "MB of disk", "CPU ms, API", "database")
        for arm in result["arms"]:
            table.add_row(
                *(arm[name] for name in ("name", "state", "table")),
                f"{arm['round_trips']:,}",
                f"{1000 * arm['seconds']:,.0f} ({1000 * arm['seconds_min']:,.0f} to"
                f" {1000 * arm['seconds_max']:,.0f})",
                f"{arm['bytes'] / 1e6:.2f}",
                f"{arm['blocks_read']:,}",
                f"{arm['read_ms']:.1f}",
                f"{arm['disk_bytes'] / 1e6:.2f}",
                f"{1000 * arm['api_cpu']:.0f}",
                f"{1000 * arm['database_cpu']:.0f}",
            )
        console.print(table)
        console.print(f"{result['ratios']}")

    def fault(self, result: dict[str, Any]) -> str | None:
        wrong = result["mismatches"]
        return f"{wrong} documents were not read as they were stored" if wrong else None


def result(options: dict[str, Any], found: dict[tuple[str, str, str], list[Run]]) -> dict[str, Any]:
    arms = [
        {"name": name, "state": state, "table": table, **summary(runs)}
        for (name, state, table), runs in found.items()
    ]
    return {
        "bench": BatchBench.name,
        "machine": machine(),
        **{name: options[name] for name in ("nodes", "groups", "profile", "repetitions")},
        "arms": arms,
        "ratios": ratios(arms),
        "mismatches": sum(run.mismatches for runs in found.values() for run in runs),
    }


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """The medians, and the spread of the seconds."""
    seconds = [run.seconds for run in runs]

    def median(figure: str) -> float:
        return float(statistics.median(getattr(run, figure) for run in runs))

    return {
        **{
            name: round(median(name))
            for name in ("round_trips", "bytes", "blocks_read", "reads", "disk_bytes")
        },
        **{
            name: round(median(name), 4)
            for name in ("seconds", "read_ms", "api_cpu", "database_cpu")
        },
        "seconds_min": round(min(seconds), 4),
        "seconds_max": round(max(seconds), 4),
    }


def ratios(arms: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The worst of BATCHES on the worst of the tables; without what was not measured.
    `hot_vs_single` is how many times as fast, the others are parts of the time."""
    seconds = {(arm["name"], arm["state"], arm["table"]): arm["seconds"] for arm in arms}

    def of(state: str, other: Arm) -> list[float]:
        return [
            seconds[batch.name, state, table] / seconds[other.name, state, table]
            for batch in BATCHES
            for table in TABLES
            if {(batch.name, state, table), (other.name, state, table)} <= seconds.keys()
        ]

    found = {}
    if hot := of(HOT, SINGLE):
        found["hot_vs_single"] = round(1 / max(hot), 2)
    for name, other in (("cold_vs_pipelined", PIPELINED), ("cold_vs_single", SINGLE)):
        if cold := of(COLD, other):
            found[name] = round(max(cold), 4)
    return found


class Rig:
    """The database, and a server for each pair of a cold run and a hot one."""

    def __init__(self, session: Session, postgres: ColdPostgres, options: dict[str, Any]) -> None:
        self._session = session
        self._postgres = postgres
        self._options = options
        self._layouts: dict[str, Layout] = {}
        self._server = Server(
            f"127.0.0.1:{free_port()}",
            tokens.create("reader", "viewer", days=1)[1],
            workers.issue_token("reader", "all")[1],
        )

    def make(self, table: str) -> None:
        """Store the nodes, or age those that are there."""
        say, chosen = self._session.console.print, self._options
        if not self._layouts:
            say(f"storing {chosen['nodes']:,} nodes in three layouts")
            self._layouts = batch_fleet.load(
                chosen["nodes"],
                chosen["groups"],
                chosen["profile"],
                lambda: self._postgres.rewrite("document"),
            )
        if table == AGED:
            say("changing 30% of them")
            batch_fleet.age(self._layouts, chosen["profile"])
        self._postgres.tidy()
        connections.close_all()

    def measured(
        self, arms: Sequence[Arm], repetitions: int
    ) -> Iterator[tuple[tuple[str, str], Run]]:
        """Each arm cold, then hot; every second time in the opposite order."""
        with progress(self._session.console) as bar:
            task = bar.add_task("reading", total=repetitions * len(arms))
            for number in range(repetitions):
                for arm in arms if number % 2 == 0 else reversed(arms):
                    self._postgres.chill()
                    known: dict[int, bytes] = {}
                    with self._serving() as stack:
                        for state in (COLD, HOT):
                            yield (arm.name, state), self._run(arm, stack, known)
                    bar.advance(task)

    @contextmanager
    def _serving(self) -> Iterator[Stack]:
        stack = Stack(self._server.listen, "", self._session.log / "server")
        with running(stack):
            stack.start_server("--no-maintenance")
            # A database that was started has another.
            self._server = replace(self._server, incarnation=str(incarnation.current()))
            connections.close_all()
            yield stack

    def _run(self, arm: Arm, stack: Stack, known: dict[int, bytes]) -> Run:
        layout = self._layouts[arm.layout]
        before = self._postgres.reads()
        # Counting has ended all connections.
        batch_reads.warm(self._server)
        roots = {"api": stack.pids()["server"], "database": self._postgres.pid}
        disk, cpu = self._postgres.disk_bytes(), processes.cpu_seconds(roots)
        began = time.perf_counter()
        found = arm.read(self._server, layout, known)
        seconds = time.perf_counter() - began
        used = processes.difference(processes.cpu_seconds(roots), cpu)
        disk = self._postgres.disk_bytes() - disk
        after = self._postgres.reads()
        return Run(
            found.round_trips,
            seconds,
            found.received,
            after.blocks - before.blocks,
            after.operations - before.operations,
            after.milliseconds - before.milliseconds,
            disk,
            used["api"],
            used["database"],
            batch_reads.wrong(found, layout, is_single=arm.is_single),
        )
