"""A slow network: a TCP relay on loopback, with a delay and so many bits a second."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

CHUNK = 64 * 1024


class _Direction:
    """Bytes one way: each chunk waits for the line to be free, and then for the delay."""

    def __init__(self, delay: float, bytes_per_second: float) -> None:
        self._delay = delay
        self._rate = bytes_per_second
        self._free = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arriving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        delivering = asyncio.create_task(self._deliver(arriving, writer))
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(CHUNK):
                self._free = max(loop.time(), self._free) + len(data) / self._rate
                await arriving.put((self._free + self._delay, data))
        except OSError:
            pass
        await arriving.put((0.0, b""))
        await delivering

    async def _deliver(
        self, arriving: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                due, data = await arriving.get()
                if not data:
                    break
                await asyncio.sleep(max(0.0, due - loop.time()))
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.contextmanager
def relay(url: str, delay: float, bits_per_second: float = 1e10) -> Iterator[str]:
    """Another address of the server, `delay` seconds away each way. All connections share the
    line."""
    parts = urlsplit(url)
    loop = asyncio.new_event_loop()
    there, back = (_Direction(delay, bits_per_second / 8) for _ in range(2))

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(there.carry(reader, far_writer), back.carry(far_reader, writer))

    server = loop.run_until_complete(asyncio.start_server(accepted, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, name="relay", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
