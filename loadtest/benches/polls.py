"""`bench polls`: parked long-polls of one server, and how soon an enqueue reaches one of them.

`measure` needs a running server on this process's database.
"""

from __future__ import annotations

import asyncio
import json
import queue
import resource
import threading
import time
import uuid
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from rich.console import Console

from loadtest.bench import Bench, BenchError, Session, machine, percentile, settings
from loadtest.rig.stack import Stack, free_port, running
from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.tags import tags
from tagmill.work import workers

WAIT_SECONDS = 60
# Nothing here takes seconds: what has not come by then is lost.
LOST_SECONDS = 20.0


@dataclass(frozen=True)
class Measured:
    """Milliseconds from just before the commit that makes work to the whole HTTP answer."""

    polls: int
    threads: int
    leases: int
    p50_ms: float
    p95_ms: float
    worst_ms: float
    burst_leases: int
    burst_ms: float


class Polls:
    """`count` workers, each in a long-poll on its own connection, run by one thread.

    `arrivals` gets (time.monotonic(), answer) for each answer that holds a lease; that poll is not
    repeated. Empty answers are."""

    def __init__(self, url: str, token: str, count: int) -> None:
        self.arrivals: queue.SimpleQueue[tuple[float, dict[str, Any]]] = queue.SimpleQueue()
        self._address = urlsplit(url)
        self._token = token
        self.count = count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._polls: list[asyncio.Task[None]] = []

    def __enter__(self) -> Polls:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(LOST_SECONDS * 6)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(LOST_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LOST_SECONDS)
        self._loop.close()

    def next_arrival(self) -> tuple[float, dict[str, Any]]:
        """Raises queue.Empty when none comes, and what ended a poll when one failed."""
        self.check()
        return self.arrivals.get(timeout=LOST_SECONDS)

    def check(self) -> None:
        """Raises what ended a poll, if one failed."""
        for poll in self._polls:
            if poll.done() and (error := poll.exception()):
                raise error

    async def _start(self) -> None:
        # A few at a time: this is about waiting, not about registering.
        gate = asyncio.Semaphore(16)

        async def register(number: int) -> Connection:
            async with gate:
                connection = await Connection.open(self._address.hostname, self._address.port)
                answer = await connection.post(
                    "workers/register",
                    self._token,
                    {"name": f"poll-{number}", "evaluator": "none", "version": "0"},
                )
                connection.worker = answer["worker"]
                return connection

        connections = await asyncio.gather(*(register(n) for n in range(self.count)))
        self._polls = [asyncio.create_task(self._poll(item)) for item in connections]

    async def _poll(self, connection: Connection) -> None:
        asked = {"worker": connection.worker, "max_partitions": 1, "holds": []}
        try:
            while True:
                answer = await connection.post("workers/lease", self._token, asked, WAIT_SECONDS)
                if answer["leases"]:
                    self.arrivals.put((time.monotonic(), answer))
                    return
        finally:
            connection.close()

    async def _stop(self) -> None:
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)


class Connection:
    """As much of an HTTP client as this needs, so that 1,000 of them cost little."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.worker = ""

    @classmethod
    async def open(cls, host: str | None, port: int | None) -> Connection:
        return cls(*await asyncio.open_connection(host, port))

    async def post(self, path: str, token: str, body: Any, wait: int = 0) -> dict[str, Any]:
        data = json.dumps(body).encode()
        prefer = f"Prefer: wait={wait}\r\n" if wait else ""
        head = (
            f"POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{prefer}"
            f"Authorization: Worker {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        answer = json.loads(await self._reader.readexactly(length))
        if head.split()[1][0] != "2":
            raise OSError(f"{path}: {answer}")
        return dict(answer)

    def close(self) -> None:
        self._writer.close()


def measure(url: str, pid: int, polls: int, leases: int, burst: int) -> Measured:
    """Park `polls`, then make work `leases` times for one of them, then once for `burst` of them.

    Every piece of work is a new partition (of a cluster of its own), so nothing needs completing.
    Nothing is evaluated where it is stored: a settled node would be no work for a worker.
    Raises queue.Empty when a lease does not arrive."""
    raise_file_limit()
    run = uuid.uuid4().hex[:8]
    _, token = workers.issue_token(f"polls-{run}", "all")
    tags.create(f"polls-{run}", definition="//node")
    names = [f"polls-{run}-{number}" for number in range(leases + burst)]
    for name in names:
        clusters.create(name)

    def make_work(wanted: list[str]) -> float:
        with transaction.atomic():
            uploads = [
                ingest.Upload(name, name, name, None, {"lshw": b"<node/>"}) for name in wanted
            ]
            refused = [item for item in ingest.store(uploads) if item.error]
            if refused:
                raise AssertionError(refused)
            return time.monotonic()

    milliseconds = []
    with settings(settle_seconds=0), Polls(url, token, polls) as parked:
        wait_until(lambda: all_parked(parked, url))
        for name in names[:leases]:
            began = make_work([name])
            milliseconds.append((parked.next_arrival()[0] - began) * 1000)
        began = make_work(names[leases:])
        arrived = [parked.next_arrival()[0] for _ in range(burst)]
        threads = thread_count(pid)
    milliseconds.sort()
    return Measured(
        polls=polls,
        threads=threads,
        leases=leases,
        p50_ms=round(percentile(milliseconds, 0.5), 1),
        p95_ms=round(percentile(milliseconds, 0.95), 1),
        worst_ms=round(milliseconds[-1], 1),
        burst_leases=burst,
        burst_ms=round((max(arrived) - began) * 1000, 1) if burst else 0.0,
    )


def all_parked(polls: Polls, url: str) -> bool:
    polls.check()
    return parked_polls(url) >= polls.count


def thread_count(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])


def parked_polls(url: str) -> int:
    from urllib.request import urlopen

    with urlopen(f"{url}/metrics", timeout=LOST_SECONDS) as answer:  # noqa: S310 - our server
        for line in answer.read().decode().splitlines():
            if line.startswith("tagmill_parked_polls "):
                return int(float(line.split()[1]))
    return 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LOST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the polls were not parked in time")
        time.sleep(0.05)


def raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class PollsBench(Bench):
    name = "polls"
    help = "parked long-polls: the server's threads, and how soon a lease is handed out"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--polls", type=int, default=1000)
        parser.add_argument("--leases", type=int, default=200, help="one at a time")
        parser.add_argument("--burst", type=int, default=100, help="leases at once, at the end")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        polls, leases, burst = (options[name] for name in ("polls", "leases", "burst"))
        if leases < 1 or burst < 0 or polls < leases + burst:
            raise BenchError("every lease ends a poll: --polls must be at least --leases + --burst")
        stack = Stack(f"127.0.0.1:{free_port()}", "", session.log)
        with running(stack):
            stack.start_server("--no-maintenance")
            try:
                found = measure(stack.url, stack.pids()["server"], polls, leases, burst)
            except (OSError, queue.Empty) as error:
                raise BenchError(f"a poll failed or no lease came: {error!r}") from error
        return {"bench": "polls", "machine": machine(), **asdict(found)}

    def show(self, console: Console, result: dict[str, Any]) -> None:
        console.print(
            f"{result['polls']:,} parked polls on {result['threads']} threads of the server\n"
            f"{result['leases']} leases, each from the commit that makes its work: p50 "
            f"{result['p50_ms']} ms, p95 {result['p95_ms']} ms, worst {result['worst_ms']} ms\n"
            f"{result['burst_leases']} at once: {result['burst_ms']} ms"
        )
