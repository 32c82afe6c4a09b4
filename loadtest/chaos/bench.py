"""`bench chaos`: each fault under load, and what is true after it."""

from __future__ import annotations

import itertools
import os
import time
from argparse import ArgumentParser
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from loadtest.bench import Bench, BenchError, Session, machine, names_of
from loadtest.chaos import checks
from loadtest.chaos.checks import Usage
from loadtest.chaos.faults import FAULTS, GENTLE, Fault
from loadtest.chaos.ledger import Ledger, stored_documents
from loadtest.chaos.site import Site, add_sizes, check_site, made, until_ready
from loadtest.chaos.traffic import Traffic, define
from loadtest.rig.postgres import PostgresError

MAX_SECONDS = 60.0
MAX_SOAK_SECONDS = 24 * 3600.0
NAMES = tuple(fault.name for fault in FAULTS)
# What a process may have more at the end of a soak than after its first quarter.
MAX_MEMORY_RATIO = 1.25
MAX_MORE_BYTES = 48 << 20
MAX_MORE_FILES = 32
WARM_SECONDS = 3.0


class ChaosBench(Bench):
    name = "chaos"
    help = "two servers, three workers and a PostgreSQL of their own, under load and every fault"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_sizes(parser)
        parser.add_argument(
            "--faults", type=names_of(NAMES), default=list(NAMES), help=f"of {', '.join(NAMES)}"
        )
        parser.add_argument("--seconds", type=float, default=3.0, help="how long a fault lasts")
        parser.add_argument(
            "--soak", type=float, default=240.0, help="seconds of load and gentle faults after it"
        )
        parser.add_argument(
            "--recovery", type=float, default=5.0, help="most seconds from a fault's end"
        )

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_site(options, MAX_SECONDS)
        if not 0 <= options["soak"] <= MAX_SOAK_SECONDS:
            raise BenchError(f"--soak is at most {MAX_SOAK_SECONDS:g} seconds")
        try:
            with made(session.log, options["nodes"]) as site:
                return _Run(site, options, session.console).all()
        except (PostgresError, psycopg.Error) as error:
            raise BenchError(f"the database: {error}") from error

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table("fault", "recovery", "lost", "wrong", "restarts", "not answered at first")
        for row in result["faults"]:
            if "impossible" in row:
                table.add_row(row["says"], f"not run: {row['impossible']}")
            else:
                table.add_row(
                    row["says"],
                    f"{row['recovery_seconds']:.2f} s",
                    str(len(row["lost"])),
                    str(row["wrong_answers"]),
                    str(row["restarts"]),
                    str(row["busy"] + row["cut"]),
                )
        console.print(table)
        if soak := result["soak"]:
            console.print(
                f"Soak: {soak['seconds']:.0f} s, {soak['faults']} faults, worst recovery"
                f" {soak['worst_recovery_seconds']:.2f} s, {soak['answered']} requests answered."
            )

    def fault(self, result: dict[str, Any]) -> str | None:
        rows = [row for row in result["faults"] if "impossible" not in row]
        found = [*result["wrong"]]
        for row in [*rows, *filter(None, [result["soak"]])]:
            found += row["lost"]
            if row["wrong_answers"]:
                found.append(f"{row['name']}: {row['wrong_answers']} answers differ from lxml's")
        found += [
            f"{row['name']}: recovered after {row['recovery_seconds']:.1f} s"
            for row in rows
            if row["recovery_seconds"] > result["recovery_limit_seconds"]
        ]
        if result["soak"]:
            found += result["soak"]["grown"]
        return "; ".join(found[:10]) or None


class _Run:
    def __init__(self, site: Site, options: dict[str, Any], console: Console) -> None:
        self._site, self._options, self._console = site, options, console
        self._ledger = Ledger()
        until_ready(site)
        for system_id, xml in stored_documents().items():
            self._ledger.stored(system_id, xml)
        self._traffic = Traffic(site.url, site.token, self._ledger)
        define(self._traffic, options["tags"])

    def all(self) -> dict[str, Any]:
        began = time.monotonic()
        self._traffic.start()
        try:
            self._site.rest(WARM_SECONDS)
            checks.recovery(self._site, self._traffic)
            chosen = [fault for fault in FAULTS if fault.name in self._options["faults"]]
            rows = [self._one(fault) for fault in chosen]
            soak = self._soak(self._options["soak"]) if self._options["soak"] else None
        finally:
            self._traffic.stop()
        return {
            "nodes": self._options["nodes"],
            "recovery_limit_seconds": self._options["recovery"],
            "faults": rows,
            "soak": soak,
            "requests": dict(self._traffic.counted),
            "wrong": self._traffic.wrong,
            "seconds": round(time.monotonic() - began, 1),
            "machine": machine(),
        }

    def _one(self, fault: Fault) -> dict[str, Any]:
        row: dict[str, Any] = {"name": fault.name, "says": fault.says}
        if why := fault.impossible(self._site):
            return row | {"impossible": why}
        before, restarts = self._traffic.counted.copy(), self._site.restarts
        fault.run(self._site, self._traffic, self._options["seconds"])
        recovery = checks.recovery(self._site, self._traffic)
        found = self._judged()
        counted = self._traffic.counted - before
        row |= {
            "recovery_seconds": recovery.seconds,
            "stored_seconds": recovery.stored,
            "defined_seconds": recovery.defined,
            "load": round(os.getloadavg()[0], 1),
            "restarts": self._site.restarts - restarts,
            **{name: counted[name] for name in ("answered", "busy", "cut", "wrong")},
            **found,
            "usage": {name: one._asdict() for name, one in checks.usage(self._site).items()},
        }
        self._console.print(
            f"{fault.says}: recovered in {recovery.seconds:.2f} s (stored {recovery.stored:.2f},"
            f" defined {recovery.defined:.2f}), {len(row['lost'])} lost,"
            f" {row['wrong_answers']} wrong"
        )
        return row

    def _judged(self) -> dict[str, Any]:
        """While the clients rest: what is lost, and what is wrong."""
        self._traffic.pause(self._site.look)
        try:
            checks.until_settled(self._site)
            return {
                "lost": self._ledger.lost(),
                "wrong_answers": checks.wrong_answers(self._ledger),
            }
        finally:
            self._traffic.resume()

    def _soak(self, seconds: float) -> dict[str, Any]:
        """Nothing is killed meanwhile: each process is compared with itself."""
        began, restarts = time.monotonic(), self._site.restarts
        before, first = self._traffic.counted.copy(), None
        recoveries = []
        for fault in itertools.cycle(GENTLE):
            passed = time.monotonic() - began
            if passed > seconds:
                break
            if first is None and passed > seconds / 4:
                first = checks.usage(self._site)
            fault.run(self._site, self._traffic, self._options["seconds"])
            recoveries.append(checks.recovery(self._site, self._traffic).seconds)
            self._site.rest(self._options["seconds"])
        found = self._judged()
        last = checks.usage(self._site)
        return {
            "name": "soak",
            "seconds": round(time.monotonic() - began, 1),
            "faults": len(recoveries),
            "worst_recovery_seconds": round(max(recoveries), 3),
            "restarts": self._site.restarts - restarts,
            "answered": (self._traffic.counted - before)["answered"],
            **found,
            "grown": grown(first or last, last),
            "usage": {
                name: {"first": (first or last)[name]._asdict(), "last": one._asdict()}
                for name, one in last.items()
                if name in (first or last)
            },
        }


def grown(first: dict[str, Usage], last: dict[str, Usage]) -> list[str]:
    """Processes that are the same, and have more than they may."""
    found = []
    for name, now in last.items():
        then = first.get(name)
        if then is None or then.pid != now.pid:
            continue
        if now.files > then.files + MAX_MORE_FILES:
            found.append(f"{name} had {then.files} open files, and has {now.files}")
        if now.memory_bytes > max(
            then.memory_bytes * MAX_MEMORY_RATIO, then.memory_bytes + MAX_MORE_BYTES
        ):
            grew = (now.memory_bytes - then.memory_bytes) >> 20
            found.append(f"{name} takes {grew} MiB more than after a quarter of the soak")
    return found
