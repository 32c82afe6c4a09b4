"""`bench change`: what a change of a document costs, and how soon a tag shows it.

Real clients upload changed documents to a real server, with and without tags; a marker flips one
tag's verdict, alone and while all tags are rebuilt; a bulk import changes nodes, and the same again
changes nothing. At the end every verdict is compared with lxml's.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentParser
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.generate import ProfileName
from loadtest.bench import (
    Bench,
    BenchError,
    Session,
    add_fleet,
    check_sizes,
    machine,
    numbers,
    percentile,
)
from loadtest.references import documents
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig import changes, definitions, processes
from loadtest.rig.changes import MARKER_DEFINITION, MARKER_TAG, Changes, Delays, Uploads
from loadtest.rig.rig import Rig, Running

# Delays are measured with as many tags, and with all.
STEPS = (10, 100, 500)
MIN_SECONDS, MAX_SECONDS = 0.1, 600.0
MAX_COMPARED = 1_000_000_000
# The parts of the system, by the names that the rig gives to their processes.
PROCESSES = {"api": "server", "database": "database", "worker": "worker"}


@dataclass(frozen=True)
class ChangeOptions:
    nodes: int
    tags: int
    profile: ProfileName
    seed: int
    workers: int
    clients: list[int]
    seconds: float
    compared: int
    processes: int

    @property
    def server(self) -> list[str]:
        """The server's options."""
        return ["--processes", str(self.processes)]


class ChangeRun:
    def __init__(self, chosen: ChangeOptions, session: Session) -> None:
        self.options = chosen
        self._session = session
        self._tags = tags_of(chosen.tags)

    def run(self) -> dict[str, Any]:
        chosen = self.options
        self._say(f"generating {chosen.nodes:,} nodes ({chosen.profile})")
        loader.load(chosen.nodes, seed=chosen.seed, profile=chosen.profile)
        size = documents.mean_bytes()
        sent = Changes()
        with Rig(self._session.url, self._session.log) as rig:
            rig.tidy()
            with rig.stack(chosen.workers, server=chosen.server) as running:
                without = self._uploads(running, sent, "no tag")
                by_tags = {
                    str(step): self._visible(running, sent, step) for step in steps(chosen.tags)
                }
                self._say("bulk imports")
                imported = sent.imported(running)
            rig.tidy()
            costs, uploads = self._costs(rig, sent)
        self._say("asking lxml, the reference")
        reference = ask_lxml(self._tags, chosen.compared or None)
        rates = {name: found["per_second"] for name, found in uploads.items()}
        rates_without = {name: found["per_second"] for name, found in without.items()}
        return {
            "bench": "change",
            "machine": machine(),
            "nodes": chosen.nodes,
            "tags": chosen.tags,
            "profile": chosen.profile,
            "document_bytes_mean": round(size, 1),
            "workers": chosen.workers,
            "processes": chosen.processes,
            "seconds": chosen.seconds,
            "puts_per_second": rates,
            "puts_per_second_without_tags": rates_without,
            "of_those_without_tags": {
                name: round(rate / rates_without[name], 3) for name, rate in rates.items()
            },
            "uploads": uploads,
            "visible_ms": by_tags[str(chosen.tags)],
            "visible_ms_by_tags": by_tags,
            "import": imported,
            **costs,
            "compared_evaluations": reference.evaluations,
            "compared_every": reference.every,
            "mismatches": mismatches(reference),
        }

    def _uploads(self, running: Running, sent: Changes, label: str) -> dict[str, dict[str, Any]]:
        found = {}
        for clients in self.options.clients:
            self._say(f"uploads by {clients} clients, {label}")
            found[str(clients)] = _rates(sent.upload(running, clients, self.options.seconds))
            running.settle()
        return found

    def _visible(self, running: Running, sent: Changes, count: int) -> dict[str, Any]:
        self._say(f"from the request to the tag, {count} tags")
        known = list(itertools.islice(self._tags, count))
        missing = known[self._created(running) :]
        running.rig.create_tags({name: self._tags[name] for name in missing})
        running.settle()
        # The workers have met every partition.
        running.rebuild(known)
        idle = _delays(sent.visible(running, self.options.seconds))
        rebuild = _delays(sent.visible(running, self.options.seconds, known))
        running.settle()
        return {"idle": idle, "rebuild": rebuild}

    def _created(self, running: Running) -> int:
        return int(running.rig.scalar("SELECT count(*) FROM tag"))

    def _costs(self, rig: Rig, sent: Changes) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """What all uploads with all tags wrote and used, the workers' part included."""
        rows = changes.match_rows(rig)
        with rig.stack(self.options.workers, server=self.options.server) as running:
            wal, cpu = changes.wal_bytes(rig), running.cpu_seconds()
            uploads = self._uploads(running, sent, f"{self.options.tags} tags")
            wal = changes.wal_bytes(rig) - wal
            spent = processes.difference(running.cpu_seconds(), cpu)
        rows = changes.match_rows(rig) - rows
        count = sum(found["uploads"] for found in uploads.values())
        return {
            "changes": count,
            "wal_bytes_per_change": round(wal / count, 1),
            "match_rows_per_change": round(rows / count, 4),
            "cpu_ms_per_change": {
                # A user's own database is not seen.
                name: round(spent[process] * 1000 / count, 3) if process in spent else None
                for name, process in PROCESSES.items()
            },
        }, uploads

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")


def tags_of(count: int) -> dict[str, str]:
    """`count` definitions by name; the first is the one that is flipped."""
    return {MARKER_TAG: MARKER_DEFINITION, **definitions.definitions(count - 1)}


def steps(tags: int) -> list[int]:
    return [*(step for step in STEPS if step < tags), tags]


def _rates(found: Uploads) -> dict[str, Any]:
    count = len(found.milliseconds)
    return {
        "per_second": round(found.per_second, 1),
        "uploads": count,
        "p50_ms": round(percentile(found.milliseconds, 0.5), 2),
        "p95_ms": round(percentile(found.milliseconds, 0.95), 2),
        "settled_share": round(found.settled / count, 4),
    }


def _delays(found: Delays) -> dict[str, Any]:
    count = len(found.milliseconds)
    return {
        "p50": round(percentile(found.milliseconds, 0.5), 2),
        "p95": round(percentile(found.milliseconds, 0.95), 2),
        "changes": count,
        "settled_share": round(found.settled / count, 4),
        "rebuilds": found.rebuilds,
    }


class ChangeBench(Bench):
    name = "change"
    help = "uploads a second, how soon a tag shows a change, and what a change writes and uses"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser)
        parser.add_argument("--tags", type=int, default=500)
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument("--processes", type=int, default=1, help="of the server")
        parser.add_argument("--clients", type=numbers, default=[1, 8, 32], help="as 1,8,32")
        parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
        parser.add_argument(
            "--compared",
            type=int,
            default=0,
            metavar="N",
            help="evaluations by lxml at most: of all tags, on a sample of nodes; 0: all nodes",
        )

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "tags", "workers", "clients", "processes")
        if not MIN_SECONDS <= options["seconds"] <= MAX_SECONDS:
            raise BenchError(f"--seconds is {MIN_SECONDS:g} to {MAX_SECONDS:g}")
        if not 0 <= options["compared"] <= MAX_COMPARED:
            raise BenchError(f"--compared is 0 to {MAX_COMPARED:,}")
        if options["nodes"] <= max(options["clients"]):
            raise BenchError("--nodes must be more than --clients: each changes nodes of its own")
        names = [field.name for field in fields(ChangeOptions)]
        return ChangeRun(ChangeOptions(**{name: options[name] for name in names}), session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title=f"{result['nodes']:,} nodes, {result['tags']} tags")
        for column in ("clients", "uploads/s", "without tags", "p50 ms", "p95 ms", "settled"):
            table.add_column(column, justify="right")
        for clients, found in result["uploads"].items():
            table.add_row(
                clients,
                f"{found['per_second']:,.1f}",
                f"{result['puts_per_second_without_tags'][clients]:,.1f}",
                f"{found['p50_ms']:.1f}",
                f"{found['p95_ms']:.1f}",
                f"{found['settled_share']:.1%}",
            )
        console.print(table)
        for tags, found in result["visible_ms_by_tags"].items():
            for state, delay in found.items():
                console.print(
                    f"visible with {tags} tags, {state}: p50 {delay['p50']:.1f} ms, "
                    f"p95 {delay['p95']:.1f} ms ({delay['settled_share']:.0%} settled)"
                )
        for name in ("import", "wal_bytes_per_change", "match_rows_per_change"):
            console.print(f"{name}: {result[name]}")
        console.print(f"cpu_ms_per_change: {result['cpu_ms_per_change']}")
        console.print(f"mismatches with lxml: {result['mismatches']}")
