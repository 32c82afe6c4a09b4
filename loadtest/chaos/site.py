"""A PostgreSQL, two API servers behind a balancer, and three workers, all this run's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil
import psycopg
from django.contrib.auth.models import User
from django.core.management import call_command

from api import tokens
from api.roles import Role
from fixtures import loader
from loadtest.bench import BenchError, check_sizes
from loadtest.chaos.network import Network
from loadtest.rig.postgres import Postgres, PostgresError
from loadtest.rig.scratch import using
from loadtest.rig.stack import Stack, free_port
from tagmill.work import workers

SERVERS = 2
WORKERS = 3
LEASE_SECONDS = 2
LOOK_SECONDS = 0.05
READY_SECONDS = 60.0
DISK_BYTES = 768 << 20
# A site that recovers within seconds has short leases; the rest is as it comes, but that a server
# ends every statement before a client gives its answer up.
SETTINGS = {
    "TAGMILL_LEASE_SECONDS": str(LEASE_SECONDS),
    "TAGMILL_HEARTBEAT_SECONDS": "1",
    "TAGMILL_PARTITION_SLOTS": "64",
    "TAGMILL_STATEMENT_SECONDS": "5",
    "TAGMILL_LOCK_SECONDS": "3",
    "TAGMILL_THREADS": "8",
}
# For each of two servers 36, and a few more.
DATABASE = {
    "max_connections": 120,
    "shared_buffers": "64MB",
    "max_wal_size": "128MB",
    "min_wal_size": "32MB",
}
FAKETIME = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
)


def add_sizes(parser: ArgumentParser) -> None:
    """How large the site is: `nodes` and `tags` of the options."""
    parser.add_argument("--nodes", type=int, default=400, help="nodes of the fleet")
    parser.add_argument("--tags", type=int, default=10, help="tags that nobody edits")


def check_site(options: Mapping[str, Any], most_seconds: float) -> None:
    """Raises BenchError for a size, or for seconds, that a site cannot have."""
    check_sizes(options, "nodes", "tags")
    if not 0 < options["seconds"] <= most_seconds:
        raise BenchError(f"--seconds is above 0, and at most {most_seconds:g}")


class Probed(Protocol):
    """What is looked at from outside. Whoever waits calls `look`."""

    token: str

    @property
    def url(self) -> str: ...

    def look(self) -> None: ...


class Site:
    """Whoever waits calls `look`, which starts again what has ended, as service managers do."""

    def __init__(self, directory: Path, nodes: int, disk: Path | None) -> None:
        self.disk = disk
        self.clock = Clock(directory / "clock")
        self.network = Network()
        self.restarts = 0
        self.postgres = Postgres(
            (disk or directory) / "p", settings=DATABASE, environment=self.clock.environment
        )
        self.is_database_wanted = True
        self.postgres.start()
        self._directory, self._nodes = directory, nodes

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        with using(self.postgres.url):
            call_command("migrate", verbosity=0)
            loader.load(self._nodes, seed=5)
            self.token: str = tokens.issue(
                User.objects.create_superuser("chaos"), Role.ADMIN, days=0
            )[1]
            worker_token = workers.issue_token("chaos", "all")[1]
            port = self.postgres.socket / ".s.PGSQL.5432"
            self.database_wire = self.network.wire(port)
            self.servers = [self._server(number) for number in range(1, SERVERS + 1)]
            addresses = [("127.0.0.1", int(one.listen.rpartition(":")[2])) for one in self.servers]
            self.front = self.network.wire(*addresses)
            self.back = self.network.wire(*addresses)
            self.workers = self._stack(f"127.0.0.1:{self.back.port}", "workers", worker_token)
            try:
                for server in self.servers:
                    server.start_server()
                self.workers.start_workers(WORKERS, cache=self._directory / "cache")
                yield self
            finally:
                for stack in (self.workers, *self.servers):
                    stack.stop()

    def close(self) -> None:
        self.network.close()
        if self.postgres.is_alive:
            self.postgres.stop("immediate")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.front.port}"

    @property
    def full_file(self) -> Path:
        """What takes all room beside the database, on the disk that is there for it."""
        return (self.disk or self._directory) / "full"

    def look(self) -> None:
        if self.is_database_wanted and not self.postgres.is_alive:
            # It has crashed. On a full disk it does not start, either: the next look tries again.
            with contextlib.suppress(PostgresError):
                self.postgres.start()
        for stack in (*self.servers, self.workers):
            self.restarts += len(stack.revive())

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(LOOK_SECONDS)

    def processes(self) -> dict[str, psutil.Process]:
        """Servers and workers; not the workers' children."""
        found = {}
        for number, server in enumerate(self.servers, 1):
            found[f"server-{number}"] = server.pids()["server"]
        found |= self.workers.pids()
        return {name: psutil.Process(pid) for name, pid in found.items() if psutil.pid_exists(pid)}

    def signal(self, number: signal.Signals, *names: str) -> None:
        """To these processes and their children."""
        for name, process in self.processes().items():
            if name in names or not names:
                with contextlib.suppress(psutil.NoSuchProcess):
                    for one in (process, *process.children(recursive=True)):
                        one.send_signal(number)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """To the database, past the wire."""
        return psycopg.connect(self.postgres.url, autocommit=True, connect_timeout=5)

    def _server(self, number: int) -> Stack:
        return self._stack(f"127.0.0.1:{free_port()}", f"server-{number}", "")

    def _stack(self, listen: str, name: str, token: str) -> Stack:
        environment = {
            **SETTINGS,
            "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{self.database_wire.port}/postgres",
            "TAGMILL_VAR": str(self._directory / name),
            **self.clock.environment,
        }
        return Stack(listen, token, self._directory / f"log-{name}", environment)


class Clock:
    """The clock of the site's processes, where libfaketime is installed: it reads a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.library = next((path for path in FAKETIME if Path(path).exists()), None)
        self.step(0)

    @property
    def environment(self) -> dict[str, str]:
        if self.library is None:
            return {}
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, days: int) -> None:
        """So far from the true time."""
        self._file.write_text(f"{days:+d}d\n")
        self._file.chmod(0o644)


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """A file system of DISK_BYTES in memory; None where that is not allowed."""
    place.mkdir()
    options = f"size={DISK_BYTES},mode=755"
    command = ["mount", "-t", "tmpfs", "-o", options, "tagmill-chaos", str(place)]
    is_possible = sys.platform == "linux" and os.geteuid() == 0
    done = is_possible and subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603
    try:
        yield place if done else None
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(place)], check=False)  # noqa: S603, S607


@contextlib.contextmanager
def made(directory: Path, nodes: int) -> Iterator[Site]:
    with small_disk(directory / "disk") as disk:
        site = Site(directory, nodes, disk)
        try:
            with site.running():
                yield site
        finally:
            site.close()


def until_ready(site: Site) -> None:
    """Raises BenchError."""
    deadline = time.monotonic() + READY_SECONDS
    while sum(server.parked_polls() for server in site.servers) < WORKERS:
        site.look()
        if time.monotonic() > deadline:
            raise BenchError("the workers did not come to the servers")
        time.sleep(LOOK_SECONDS)
