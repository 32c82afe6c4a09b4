"""`bench cache`: lists of nodes with and without the body cache, by many clients at once.

The shape is that of the cache that gave the idea: so many calls by so many clients, for lists of
ten to three thousand nodes. The arms are asked one after another for each size, each at a server
that is set up for it, all on one database.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import statistics
import subprocess
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from typing import Any
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table

from api import tokens
from api.cache import controls
from api.cache.controls import Scope
from loadtest.bench import Bench, BenchError, Session, machine, numbers
from loadtest.rig import processes
from loadtest.rig.readers import Reading, read
from loadtest.rig.stack import Stack, free_port, running
from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.tags import assignments, tags

SIZES = "10,20,30,40,50,75,100,250,500,600,750,900,1000,2000,3000"
PLAIN = "loadtest.references.plain_settings"
CHUNK = 500
# Until the server's threads have connections, and its statements are prepared.
WARM_CALLS = 6
CHANGES = 50
BEGIN_SECONDS = 0.1


@dataclass(frozen=True)
class Arm:
    """`server`: which of those below answers it. `prefix`: of the path."""

    name: str
    server: str
    prefix: str = "/api/v1"
    headers: Mapping[str, str] | None = None


ARMS = (
    Arm("drf", "without", "/plain"),
    Arm("uncached", "without"),
    Arm("cached", "cached"),
    Arm("cached_lifetime", "cached", headers={"Cache-Control": "max-age=10"}),
    Arm("memcached", "memcached"),
)


class CacheBench(Bench):
    name = "cache"
    help = "lists of nodes with and without the body cache: latency and CPU by size"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--calls", type=int, default=5000, help="for each size and arm")
        parser.add_argument("--threads", type=int, default=10, help="clients at once")
        parser.add_argument("--sizes", type=numbers, default=numbers(SIZES), metavar="N,N,...")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        if options["threads"] < 1 or options["calls"] < options["threads"]:
            raise BenchError("--calls must be at least --threads, and that at least 1")
        sizes = sorted(set(options["sizes"]))
        _make_lists(sizes)
        with ExitStack() as stack:
            rig = Rig(session, stack, options["threads"])
            found = []
            for size in sizes:
                session.console.print(f"{size} nodes")
                found.append({"nodes": size, "arms": rig.measured(size, options["calls"])})
            result = {
                "bench": self.name,
                "machine": machine(),
                "calls": options["calls"],
                "threads": options["threads"],
                "sizes": found,
                "ratios": ratios(found),
                "stale": rig.stale(sizes[0]),
                "builds_for_concurrent_misses": rig.builds(sizes[-1]),
            }
        return result

    def show(self, console: Console, result: dict[str, Any]) -> None:
        names = list(result["sizes"][0]["arms"])
        table = Table("nodes", *(f"{name} ms (CPU)" for name in names))
        for row in result["sizes"]:
            cells = (f"{arm['avg_ms']:.2f} ({arm['cpu_ms']:.2f})" for arm in row["arms"].values())
            table.add_row(f"{row['nodes']:,}", *cells)
        console.print(table)
        console.print(
            f"{result['ratios']}; stale: {result['stale']}; builds for concurrent misses: "
            f"{result['builds_for_concurrent_misses']}"
        )

    def fault(self, result: dict[str, Any]) -> str | None:
        return f"{result['stale']} stale bodies" if result["stale"] else None


def ratios(sizes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many times as fast, and how many times less CPU, the cache is, at the largest list and at
    the smallest; named after those of a whole run."""
    least, most = sizes[0]["arms"], sizes[-1]["arms"]

    def ratio(arms: dict[str, Any], figure: str) -> float:
        without, cached = float(arms["uncached"][figure]), float(arms["cached"][figure])
        return round(without / max(cached, 1e-9), 2)

    return {
        "at_3000": ratio(most, "avg_ms"),
        "at_10": ratio(least, "avg_ms"),
        "cpu_at_3000": ratio(most, "cpu_ms"),
    }


class Rig:
    """The servers and the clients."""

    def __init__(self, session: Session, stack: ExitStack, threads: int) -> None:
        self._threads = threads
        self._token = tokens.create("reader", "viewer", days=1)[1]
        memcached = stack.enter_context(_memcached())
        environments = {
            "without": {"TAGMILL_BODY_CACHE_BYTES": "0", "DJANGO_SETTINGS_MODULE": PLAIN},
            "cached": {},
            "memcached": {"TAGMILL_BODY_CACHE_BYTES": "0", "TAGMILL_CACHE_SERVERS": memcached},
        }
        if not memcached:
            del environments["memcached"]
            session.console.print("There is no memcached here: that arm is left out.")
        self._servers = {
            name: stack.enter_context(_server(session, name, settings))
            for name, settings in environments.items()
        }
        self._arms = [arm for arm in ARMS if arm.server in self._servers]
        context = multiprocessing.get_context("spawn")
        self._clients: Pool = stack.enter_context(context.Pool(threads))

    def measured(self, size: int, calls: int) -> dict[str, Any]:
        return {arm.name: self._measure(arm, size, calls) for arm in self._arms}

    def _measure(self, arm: Arm, size: int, calls: int) -> dict[str, float]:
        self._read(arm, size, WARM_CALLS)
        roots = {"api": self._servers[arm.server].pids()["server"]}
        if (postmaster := processes.postmaster()) is not None:
            roots["database"] = postmaster
        before = processes.cpu_seconds(roots)
        seconds = sorted(self._read(arm, size, calls // self._threads))
        used = processes.difference(processes.cpu_seconds(roots), before)
        each = 1000 / len(seconds)
        return {
            "avg_ms": round(1000 * statistics.fmean(seconds), 3),
            "min_ms": round(1000 * seconds[0], 3),
            "max_ms": round(1000 * seconds[-1], 3),
            "p99_ms": round(1000 * seconds[int(0.99 * (len(seconds) - 1))], 3),
            "cpu_ms": round(each * used["api"], 3),
            "database_ms": round(each * used.get("database", 0.0), 3),
        }

    def _read(self, arm: Arm, size: int, calls: int) -> list[float]:
        """By all clients, so many calls each."""
        stack = self._servers[arm.server]
        host, _, port = stack.listen.partition(":")
        headers = {"Authorization": f"Token {self._token}", **(arm.headers or {})}
        path = f"{arm.prefix}/tags/{_name(size)}/nodes?limit={size}"
        wanted = Reading(host, int(port), path, headers, calls, time.time() + BEGIN_SECONDS)
        found = self._clients.map(read, [wanted] * self._threads, chunksize=1)
        return [seconds for each in found for seconds in each]

    def stale(self, size: int) -> int:
        """Answers that do not show the change that was committed before they were asked for."""
        wrong = 0
        for number in range(CHANGES):
            hostname = f"changed-{number}"
            ingest.store([ingest.Upload(_node(0), hostname=hostname)])
            for name in self._servers.keys() - {"without"}:
                wrong += hostname.encode() not in self._get(name, size)
        return wrong

    def _get(self, server: str, size: int) -> bytes:
        address = f"{self._servers[server].url}/api/v1/tags/{_name(size)}/nodes?limit={size}"
        request = Request(address, headers={"Authorization": f"Token {self._token}"})  # noqa: S310 - ours
        with urlopen(request) as answer:  # noqa: S310 - ours
            return bytes(answer.read())

    def builds(self, size: int) -> int:
        """How many bodies are built when all clients miss at once."""
        before = self._misses()
        controls.flush(Scope("tag_nodes"))
        self._read(next(arm for arm in self._arms if arm.name == "cached"), size, 1)
        return self._misses() - before

    def _misses(self) -> int:
        with urlopen(f"{self._servers['cached'].url}/metrics") as answer:  # noqa: S310 - ours
            found = re.search(
                r'^tagmill_body_cache_total{keyspace="tag_nodes",outcome="miss"} (\S+)$',
                answer.read().decode(),
                re.MULTILINE,
            )
        return int(float(found[1])) if found else 0


def _name(size: int) -> str:
    return f"list-{size}"


def _node(number: int) -> str:
    return f"n{number:05}"


def _make_lists(sizes: Sequence[int]) -> None:
    """A tag of each size, assigned by hand: no worker is needed."""
    clusters.create("here")
    names = [_node(number) for number in range(max(sizes))]
    for first in range(0, len(names), CHUNK):
        chunk = names[first : first + CHUNK]
        ingest.store([ingest.Upload(name, hostname=f"rack-{name}") for name in chunk])
    for size in sizes:
        tags.create(_name(size))
        assignments.assign(_name(size), names[:size], [])


@contextmanager
def _server(session: Session, name: str, settings: Mapping[str, str]) -> Iterator[Stack]:
    stack = Stack(f"127.0.0.1:{free_port()}", "", session.log / name, settings)
    with running(stack):
        stack.start_server("--no-maintenance")
        yield stack


@contextmanager
def _memcached() -> Iterator[str]:
    """Where one answers; nothing where none is installed."""
    program = shutil.which("memcached")
    if program is None:
        yield ""
        return
    port = free_port()
    command = [program, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "64", "-u", "nobody"]
    process = subprocess.Popen(command)  # noqa: S603 - memcached
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
