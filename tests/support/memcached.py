"""Real memcached processes, and a slow way to one of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote

from pymemcache.client.base import Client

from tests.support.daemon import Daemon


class Memcached(Daemon):
    """A server of 8 MiB."""

    program = "memcached"

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self.place = f"127.0.0.1:{self.port}"
        self.start()

    def arguments(self) -> list[str]:
        listening = ["-l", "127.0.0.1", "-p", str(self.port), "-U", "0"]
        return [*listening, "-t", "1", "-m", "8", "-u", "root"]

    def is_ready(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def contents(self) -> dict[str, bytes]:
        with socket.create_connection(("127.0.0.1", self.port), 5) as link, self.client() as client:
            lines = self._dumped(link)
            keys = [unquote(line.split()[0].removeprefix("key=")) for line in lines]
            found: dict[str, bytes] = client.get_many(keys)
            return found

    def _dumped(self, link: socket.socket) -> list[str]:
        answer = link.makefile()
        while True:
            link.sendall(b"lru_crawler metadump all\r\n")
            first = answer.readline()
            # Its own crawler is at work at this moment.
            if not first.startswith("BUSY"):
                break
        return [] if first == "END\n" else [first, *iter(answer.readline, "END\n")]

    def load(self, contents: dict[str, bytes]) -> None:
        with self.client() as client:
            client.set_many(contents)

    @contextmanager
    def client(self) -> Iterator[Client]:
        made = Client(("127.0.0.1", self.port), connect_timeout=5, timeout=5)
        try:
            yield made
        finally:
            made.close()

    def count(self, name: str) -> int:
        """One of its own counters, as `cmd_get` or `curr_items`."""
        with self.client() as client:
            return int(client.stats()[name.encode()])


class Relay:
    """A way to a server that takes so many seconds in each direction."""

    def __init__(self, port: int, seconds: float) -> None:
        self._target, self._seconds = port, seconds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                far = socket.create_connection(("127.0.0.1", self._target))
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                time.sleep(self._seconds)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
