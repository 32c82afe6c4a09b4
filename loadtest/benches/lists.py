"""`bench lists`: how long the lists of the API take that have a thousand rows.

One client asks on one connection; the body cache is off, so that every answer is made. The lists
are asked for in turns, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.bench import Bench, BenchError, Session, check_sizes, machine, percentile, settings
from loadtest.rig import processes
from loadtest.rig.readers import Reading, read
from loadtest.rig.rig import Rig, Running
from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.tags import assignments, tags

LIMIT = 1000
CHUNK = 500
TURNS = 5
# Until the server's threads have connections, and its statements are prepared.
WARM_CALLS = 8
DOCUMENT = b"<list><node id='core'/></list>"
SHOWN = ("p50_ms", "p95_ms", "max_ms", "cpu_ms")
LISTS = {
    "nodes": f"nodes/?limit={LIMIT}",
    "nodes with tags": f"nodes/?limit={LIMIT}&include=tags",
    "nodes of a tag": f"tags/every/nodes?limit={LIMIT}",
    "members of a tag": "tags/every/members",
    "tags": f"tags/?limit={LIMIT}",
    "rebuilds": f"rebuilds/?limit={LIMIT}",
    "partitions": f"partitions/?limit={LIMIT}",
    "changes of a tag": f"tags/by-hand/changes?limit={LIMIT}",
    "changes": f"changes?since=0&limit={LIMIT}",
    "audit": f"audit/?limit={LIMIT}",
}


class ListsBench(Bench):
    name = "lists"
    help = "lists of a thousand rows: latency and CPU of each"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=10_000)
        parser.add_argument("--tags", type=int, default=1000)
        parser.add_argument("--calls", type=int, default=50, help="of each list")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options)
        if options["calls"] < TURNS:
            raise BenchError(f"--calls must be at least {TURNS}")
        _make_nodes(options["nodes"])
        with settings(body_cache_bytes=0), Rig(session.url, session.log) as rig:
            rig.create_tags(
                {
                    "every": "//node",
                    **{f"t{n:04}": f"//node[@id='n{n}']" for n in range(options["tags"] - 2)},
                }
            )
            _make_changes(options["nodes"])
            rig.tidy()
            with rig.stack(1) as running:
                running.settle()
                running.stack.stop_workers()
                found = _measured(running, rig.api_token, options["calls"])
        return {"bench": self.name, "machine": machine(), "lists": found, **_sizes(options)}

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table("list", "p50 ms", "p95 ms", "max ms", "CPU ms")
        for name, figures in result["lists"].items():
            table.add_row(name, *(f"{figures[key]:.1f}" for key in SHOWN))
        console.print(table)


def _sizes(options: dict[str, Any]) -> dict[str, int]:
    return {name: options[name] for name in ("nodes", "tags", "calls")}


def _make_nodes(count: int) -> None:
    clusters.create("here")
    names = [f"n{number:05}" for number in range(count)]
    for first in range(0, count, CHUNK):
        ingest.store(
            [
                ingest.Upload(name, hostname=f"rack-{name}", probes={"lshw": DOCUMENT})
                for name in names[first : first + CHUNK]
            ]
        )


def _make_changes(nodes: int) -> None:
    """A tag by hand gets one node at a time."""
    tags.create("by-hand")
    for number in range(LIMIT):
        assignments.assign("by-hand", [f"n{number % nodes:05}"], [])


def _measured(running: Running, token: str, calls: int) -> dict[str, dict[str, float]]:
    host, _, port = running.stack.listen.partition(":")
    headers = {"Authorization": f"Token {token}"}

    def ask(name: str, count: int) -> list[float]:
        path = f"/api/v1/{LISTS[name]}"
        return read(Reading(host, int(port), path, headers, count, time.time()))

    seconds: dict[str, list[float]] = {name: [] for name in LISTS}
    used: dict[str, float] = dict.fromkeys(LISTS, 0.0)
    for name in LISTS:
        ask(name, WARM_CALLS)
    for _ in range(TURNS):
        for name in LISTS:
            before = _cpu_seconds(running)
            seconds[name] += ask(name, calls // TURNS)
            used[name] += _cpu_seconds(running) - before
    return {
        name: {
            **_figures(sorted(found)),
            "cpu_ms": round(1000 * used[name] / len(found), 1),
        }
        for name, found in seconds.items()
    }


def _cpu_seconds(running: Running) -> float:
    """What the server and PostgreSQL have used."""
    roots = {"api": running.stack.pids()["server"]}
    if (postmaster := processes.postmaster()) is not None:
        roots["database"] = postmaster
    return sum(processes.cpu_seconds(roots).values())


def _figures(seconds: list[float]) -> dict[str, float]:
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "max_ms": 1.0}
    return {name: round(1000 * percentile(seconds, share), 2) for name, share in shares.items()}
