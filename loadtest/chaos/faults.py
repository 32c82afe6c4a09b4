"""The faults, each from its beginning to the moment from which the site may recover."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from loadtest.chaos.site import LEASE_SECONDS, Site
from loadtest.chaos.traffic import READS, Over, Traffic, altered

HEAVY_READERS = 24
BURST_CLIENTS = 40
BURST_EACH = 10
KILL_PAUSE_SECONDS = 0.7
HALF_OPEN_CLIENTS = 200
BLOCK = bytes(1 << 20)
MAX_TAKEN = 1000
# More than PostgreSQL keeps of its log.
MAX_LOG_MIB = 512
LOG_A_MIB = "SELECT pg_logical_emit_message(true, 'chaos', repeat('x', 1 << 20))"


@dataclass(frozen=True)
class Fault:
    """`run` takes the seconds that it is to last; what it did to the site is undone when it
    returns."""

    name: str
    says: str
    run: Callable[[Site, Traffic, float], None]
    impossible: Callable[[Site], str | None] = lambda _: None


def _rest(site: Site, _: Traffic, seconds: float) -> None:
    site.rest(seconds)


def _restart(mode: str) -> Callable[[Site, Traffic, float], None]:
    def run(site: Site, _: Traffic, seconds: float) -> None:
        with _without_database(site, mode):
            site.rest(seconds)

    return run


@contextlib.contextmanager
def _without_database(site: Site, mode: str) -> Iterator[None]:
    site.is_database_wanted = False
    site.postgres.stop(mode)
    try:
        yield
    finally:
        site.postgres.start()
        site.is_database_wanted = True


def _kill_backends(site: Site, _: Traffic, seconds: float) -> None:
    with site.connect() as administrator:
        for _number in range(max(1, round(seconds / 0.25))):
            _terminate_others(administrator)
            site.rest(0.25)


def _terminate_others(administrator: psycopg.Connection[tuple[object, ...]]) -> None:
    administrator.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )


def _exhaust_connections(site: Site, _: Traffic, seconds: float) -> None:
    """Somebody takes every connection that there is, the servers' too."""
    with contextlib.ExitStack() as taken:
        administrator = taken.enter_context(site.connect())
        _terminate_others(administrator)
        with contextlib.suppress(psycopg.OperationalError):
            for _number in range(MAX_TAKEN):
                taken.enter_context(site.connect())
        site.rest(seconds)


def _kill_everything(site: Site, _: Traffic, seconds: float) -> None:
    site.is_database_wanted = False
    processes = site.processes().values()
    site.postgres.stop("immediate")
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
    site.postgres.start()
    site.is_database_wanted = True
    site.look()


def _kill_repeatedly(site: Site, _: Traffic, seconds: float) -> None:
    """A server or a worker at a time, each in its turn."""
    names = itertools.cycle(["server-1", "worker-1", "server-2", "worker-2", "worker-3"])
    for name in itertools.islice(names, max(5, round(seconds / KILL_PAUSE_SECONDS))):
        site.signal(signal.SIGKILL, name)
        site.rest(KILL_PAUSE_SECONDS)


def _idle_in_transaction(site: Site, _: Traffic, seconds: float) -> None:
    with psycopg.connect(site.postgres.url) as forgotten:
        # In the order and the strength in which servers lock them: it holds them up, no more.
        forgotten.execute("SELECT FROM partition ORDER BY id FOR NO KEY UPDATE")
        forgotten.execute("SELECT FROM tag ORDER BY id FOR NO KEY UPDATE")
        site.rest(seconds)
        forgotten.rollback()


def _read_heavily(site: Site, traffic: Traffic, seconds: float) -> None:
    over = threading.Event()

    def read(number: int) -> None:
        client = traffic.client()
        with contextlib.suppress(Over):
            for path in itertools.cycle(READS[number % len(READS) :] + READS):
                if over.is_set():
                    break
                client.get(path)
        client.api.close()

    with _threads(read, HEAVY_READERS):
        site.rest(seconds)
        over.set()


def _burst(site: Site, traffic: Traffic, seconds: float) -> None:
    """Many clients at once that each upload some new nodes."""
    xml = traffic.sample

    def upload(number: int) -> None:
        client, rng = traffic.client(), random.Random(number)  # noqa: S311 - reproducible
        with contextlib.suppress(Over):
            for node in range(BURST_EACH):
                client.create(f"burst-{number}-{node}", altered(xml, rng))
        client.api.close()

    with _threads(upload, BURST_CLIENTS) as threads:
        while any(thread.is_alive() for thread in threads):
            site.rest(0.1)


@contextlib.contextmanager
def _threads(work: Callable[[int], None], count: int) -> Iterator[list[threading.Thread]]:
    threads = [threading.Thread(target=work, args=[number], daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join()


def _freeze_workers(site: Site, _: Traffic, seconds: float) -> None:
    """All of them, until their leases have been given to nobody, and once more one alone."""
    for names in (("worker-1", "worker-2", "worker-3"), ("worker-1",)):
        site.signal(signal.SIGSTOP, *names)
        site.rest(max(seconds, 2 * LEASE_SECONDS))
        site.signal(signal.SIGCONT, *names)


def _fill_disk(site: Site, _: Traffic, seconds: float) -> None:
    file = site.full_file
    try:
        _fill(file)
        # It has room in log files that it made before.
        with contextlib.suppress(psycopg.Error), site.connect() as writer:
            for _number in range(MAX_LOG_MIB):
                writer.execute(LOG_A_MIB)
        _fill(file)
        site.rest(seconds)
    finally:
        file.unlink()


def _fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("ab", buffering=0) as filler:
        while True:
            filler.write(BLOCK)


def _cut_network(site: Site, _: Traffic, seconds: float) -> None:
    """Between servers and database, then between workers and servers."""
    for wire in (site.database_wire, site.back):
        wire.cut()
        site.rest(seconds)
        wire.mend()


def _half_open(site: Site, traffic: Traffic, seconds: float) -> None:
    """The same wires: connections stay, and are silent; and clients that say half a request."""
    with contextlib.ExitStack() as clients:
        for _number in range(HALF_OPEN_CLIENTS):
            one = clients.enter_context(traffic.half_open())
            one.sendall(b"PUT /api/v1/nodes/x/document HTTP/1.1\r\nContent-Length: 100\r\n\r\n<")
        for wire in (site.database_wire, site.back):
            wire.hold()
            site.rest(seconds)
            wire.mend()


def _step_clock(site: Site, _: Traffic, seconds: float) -> None:
    """Servers, workers and the database are a day ahead, and then right again."""
    for days in (1, 0):
        site.clock.step(days)
        # The library looks at its file once a second.
        site.rest(max(seconds, 2.0))


def _no_disk(site: Site) -> str | None:
    return None if site.disk else "a small file system needs root, and the right to mount it"


def _no_clock(site: Site) -> str | None:
    return None if site.clock.library else "libfaketime is not installed"


FAULTS = (
    Fault("nothing", "nothing is done: what a change takes under this load", _rest),
    Fault("restart-fast", "PostgreSQL restarts (fast)", _restart("fast")),
    Fault("restart-immediate", "PostgreSQL restarts (immediate)", _restart("immediate")),
    Fault("backends", "backends are killed, four times a second", _kill_backends),
    Fault("connections", "another program takes all connections", _exhaust_connections),
    Fault("everything", "everything is killed at once", _kill_everything),
    Fault("kills", "kill -9 of servers and workers in turn", _kill_repeatedly),
    Fault("idle", "a transaction that was forgotten holds locks", _idle_in_transaction),
    Fault("readers", f"{HEAVY_READERS} clients read without pause", _read_heavily),
    Fault("burst", f"{BURST_CLIENTS} clients upload at once", _burst),
    Fault("frozen", "workers are frozen past their leases", _freeze_workers),
    Fault("disk", "the database's disk is full", _fill_disk, _no_disk),
    Fault("cut", "the network is cut", _cut_network),
    Fault("half-open", "connections are half open", _half_open),
    Fault("clock", "the clock steps by a day, and back", _step_clock, _no_clock),
)
# In a soak these come in turn, and no process is killed: memory and files are to stay flat.
GENTLE = tuple(
    fault
    for fault in FAULTS
    if fault.name in {"restart-fast", "backends", "idle", "readers", "frozen", "cut", "half-open"}
)
