"""`bench attack`: what strangers and bad uploads take of a server's memory, and whether it answers.

Each attack begins when the one before has ended. Memory is the highest of the server's process
during it, less what it had before. Meanwhile somebody asks for `/healthz`, and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import resource
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import zstandard
from rich.console import Console
from rich.table import Table

from api import tokens
from api.roles import Role
from loadtest.bench import Bench, BenchError, Session, machine
from loadtest.rig.stack import Stack, free_port, running
from tagmill.fleet import clusters

MIB = 1 << 20
FILES = 24_000
ADDRESSES = 8
LATE_SECONDS = 10.0
LOOK_SECONDS = 0.25
# Headers have 20 s, and bodies 30 s without progress.
SLOW_SECONDS = 36.0
HEADER_BYTES = 4 * MIB
BOMB_BYTES = 256 * MIB
UPLOADS = 20
MAX_MEMORY = 256 * MIB
WIDE = b"<list>" + b"<a/>" * (MIB - 4) + b"</list>"
DEEP = b"<a>" * 300_000 + b"</a>" * 300_000
LAUGHS = (
    b'<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb">'
    + b"".join(
        b'<!ENTITY b%d "%s">' % (n, b"&b%d;" % (n - 1) * 10 if n else b"&b;") for n in range(9)
    )
    + b"]><a>&b8;</a>"
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Outcome(NamedTuple):
    """`ended`: connections that the server closed, or requests that it refused; of `all`."""

    ended: int
    all: int


class AttackBench(Bench):
    name = "attack"
    help = (
        "idle and slow connections, long headers, bombs: a server's memory, and whether it answers"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--idle", type=int, default=10_000, help="connections that say nothing")
        parser.add_argument("--slow", type=int, default=1_000, help="connections that are slow")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        for name in ("idle", "slow"):
            if not 1 <= options[name] <= FILES // 2:
                raise BenchError(f"--{name} is 1 to {FILES // 2:,}")
        clusters.create("site-1")
        _, token = tokens.issue(_user(), Role.ADMIN, days=1)
        # The server inherits it.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
        environment = {"TAGMILL_CONNECTIONS": str(FILES)}
        stack = Stack(f"127.0.0.1:{free_port()}", "", session.log, environment)
        with running(stack):
            stack.start_server()
            attacks = Attacks(stack, token, options)
            found = {name: asyncio.run(attacks.run(attack)) for name, attack in attacks.all.items()}
        return {"bench": "attack", "machine": machine(), "attacks": found}

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title="one server")
        for column in ("attack", "ended or refused", "memory MB", "slowest /healthz ms"):
            table.add_column(column, justify="left" if column == "attack" else "right")
        for name, row in result["attacks"].items():
            ended = f"{row['ended']:,} of {row['all']:,}"
            memory = f"{row['memory_bytes'] / 1e6:.0f}"
            table.add_row(name, ended, memory, f"{1e3 * row['slowest_seconds']:.0f}")
        console.print(table)

    def fault(self, result: dict[str, Any]) -> str | None:
        for name, row in result["attacks"].items():
            if row["memory_bytes"] > MAX_MEMORY:
                return f"{name} took {row['memory_bytes'] / 1e6:.0f} MB"
        return None


class Attacks:
    def __init__(self, stack: Stack, token: str, options: dict[str, Any]) -> None:
        host, _, port = stack.listen.rpartition(":")
        self._host, self._port = host, int(port)
        self._pid = stack.pids()["server"]
        self._token = token
        idle, slow = options["idle"], options["slow"]
        self.all: dict[str, Callable[[], Awaitable[Outcome]]] = {
            "idle connections": lambda: self._idle(idle),
            "headers and bodies, a byte a second": lambda: self._slow(slow),
            "headers of 4 MiB": lambda: self._long(slow // 5 or 1),
            "wide XML of 4 MiB": lambda: self._uploads(WIDE),
            "deep XML of 2 MiB": lambda: self._uploads(DEEP),
            "entities in entities": lambda: self._uploads(LAUGHS),
            "gzip of 256 MiB": lambda: self._uploads(gzip.compress(bytes(BOMB_BYTES), 1), "gzip"),
            "zstd of 256 MiB": lambda: self._uploads(zstandard.compress(bytes(BOMB_BYTES)), "zstd"),
        }

    async def run(self, attack: Callable[[], Awaitable[Outcome]]) -> dict[str, Any]:
        before = self._memory(reset=True)
        slowest = 0.0
        attacking = asyncio.ensure_future(attack())
        while not attacking.done():
            began = time.monotonic()
            await self._ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.wait({attacking}, timeout=0.1)
        outcome = await attacking
        memory = max(0, self._memory() - before)
        shown = {"memory_bytes": memory, "slowest_seconds": round(slowest, 4)}
        return {**outcome._asdict(), **shown}

    def _memory(self, *, reset: bool = False) -> int:
        """The most that the process has had since the last reset."""
        folder = Path(f"/proc/{self._pid}")
        if reset:
            (folder / "clear_refs").write_text("5")
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
        raise BenchError("this system does not say how much memory a process has had")

    def _connections(self) -> int:
        with urlopen(f"http://{self._host}:{self._port}/metrics", timeout=LATE_SECONDS) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("tagmill_connections "):
                    return int(float(line.split()[1]))
        return 0

    async def _open(self, number: int) -> Streams:
        """From one of several addresses of loopback: each may have so many connections."""
        local = (f"127.0.0.{2 + number % ADDRESSES}", 0)
        return await asyncio.open_connection(self._host, self._port, local_addr=local)

    async def _idle(self, count: int) -> Outcome:
        streams = [await self._open(number) for number in range(count)]
        # A connection is there before the server has accepted it.
        held, ends = 0, time.monotonic() + LATE_SECONDS
        while held < count and time.monotonic() < ends:
            await asyncio.sleep(LOOK_SECONDS)
            held = max(held, await asyncio.to_thread(self._connections))
        if held < count:
            raise BenchError(f"the server has accepted {held:,} of {count:,} connections")
        return await self._close(streams)

    async def _slow(self, count: int) -> Outcome:
        """Half of them send headers, and half a body."""
        streams = [await self._open(number) for number in range(count)]
        heads = (b"GET / HTTP/1.1\r\nX-A: ", self._head("", 60_000))
        for number, (_, writer) in enumerate(streams):
            writer.write(heads[number % 2])
        ends = time.monotonic() + SLOW_SECONDS
        left = streams
        while left and time.monotonic() < ends:
            left = [each for each in left if not _has_ended(each)]
            for _, writer in left:
                with contextlib.suppress(ConnectionError):
                    writer.write(b"a")
            await asyncio.sleep(1)
        await self._close(left)
        return Outcome(count - len(left), count)

    async def _long(self, count: int) -> Outcome:
        async def one(number: int) -> bool:
            reader, writer = await self._open(number)
            line = b"X-A: " + b"a" * 60_000 + b"\r\n"
            writer.write(b"GET / HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(HEADER_BYTES // len(line)):
                    if _has_ended((reader, writer)):
                        break
                    writer.write(line)
                    await writer.drain()
                await asyncio.wait_for(reader.read(), LATE_SECONDS)
            was_ended = _has_ended((reader, writer))
            writer.close()
            return was_ended

        ended = await asyncio.gather(*(one(number) for number in range(count)))
        return Outcome(sum(ended), count)

    async def _uploads(self, body: bytes, coding: str = "") -> Outcome:
        head = self._head(coding, len(body))
        statuses = await asyncio.gather(*(self._ask(head + body) for _ in range(UPLOADS)))
        return Outcome(sum(400 <= status < 500 for status in statuses), UPLOADS)  # noqa: PLR2004

    def _head(self, coding: str, size: int) -> bytes:
        lines = [
            "PUT /api/v1/nodes/n1/document?cluster=site-1 HTTP/1.1",
            "Host: localhost",
            f"Authorization: Token {self._token}",
            "Content-Type: application/xml",
            f"Content-Length: {size}",
            *([f"Content-Encoding: {coding}"] if coding else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    async def _ask(self, request: bytes) -> int:
        """The status; 0 where the connection ends before."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(request)
                line = await reader.readline()
                return int(line.split()[1]) if line else 0
            return 0
        finally:
            writer.close()

    @staticmethod
    async def _close(streams: Sequence[Streams]) -> Outcome:
        ended = sum(map(_has_ended, streams))
        for _, writer in streams:
            writer.close()
        return Outcome(ended, len(streams))


def _has_ended(streams: Streams) -> bool:
    """Whether the server has closed, or reset, the connection."""
    reader, writer = streams
    return reader.at_eof() or reader.exception() is not None or writer.is_closing()


def _user() -> Any:
    from django.contrib.auth.models import User

    return User.objects.create_superuser("attacked")
