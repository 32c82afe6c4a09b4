"""TCP between the parts of a site, which can be cut and held up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK = 1 << 16
DIAL_SECONDS = 1.0
CALL_SECONDS = 30.0

# A host and a port, or a socket's path.
Place = tuple[str, int] | Path
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Network:
    """Wires, driven by one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wires: list[Wire] = []

    def wire(self, *targets: Place) -> Wire:
        """A new address of loopback; connections to it go to the targets in turn, and past those
        that do not answer, as a load balancer has it."""
        made = Wire(self, targets)
        self._wires.append(made)
        return made

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run it in the network's thread."""

        async def run() -> T:
            return await work()

        future: Future[T] = asyncio.run_coroutine_threadsafe(run(), self._loop)
        return future.result(CALL_SECONDS)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)


class Wire:
    def __init__(self, network: Network, targets: Sequence[Place]) -> None:
        self._network = network
        self._targets = list(targets)
        self._is_cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._server = network.call(lambda: asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Every connection is reset, and no new one comes about."""
        self._set(is_cut=True)

    def hold(self) -> None:
        """Connections stay, and nothing comes through: they are half open."""
        self._network.call(self._hold)

    def mend(self) -> None:
        """New connections work. Those that were held are reset, as by a firewall that has
        forgotten them."""
        self._set(is_cut=False)

    def close(self) -> None:
        self._set(is_cut=True)

        async def end() -> None:
            self._server.close()

        self._network.call(end)

    def _set(self, *, is_cut: bool) -> None:
        async def change() -> None:
            self._is_cut = is_cut
            for writer in self._open:
                writer.transport.abort()
            self._flowing.set()

        self._network.call(change)

    async def _hold(self) -> None:
        self._flowing.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._flowing.wait()
            dialled = None if self._is_cut else await self._dial()
            if dialled is None:
                return
            there, back = dialled
            self._open.add(back)
            try:
                pumps = [self._pump(reader, back), self._pump(there, writer)]
                await asyncio.gather(*pumps)
            finally:
                self._open.discard(back)
                back.transport.abort()
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _dial(self) -> Streams | None:
        self._targets.append(self._targets.pop(0))
        for target in self._targets:
            with contextlib.suppress(OSError, TimeoutError):
                return await asyncio.wait_for(_connect(target), DIAL_SECONDS)
        return None

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            # The other direction may go on.
            if writer.can_write_eof():
                writer.write_eof()
            return
        writer.transport.abort()


async def _connect(target: Place) -> Any:
    if isinstance(target, Path):
        return await asyncio.open_unix_connection(str(target))
    return await asyncio.open_connection(*target)
