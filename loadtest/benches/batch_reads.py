"""How the documents of `bench batch` are read over HTTP: one by one, and by groups."""

from __future__ import annotations

import http.client
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from loadtest.bench import BenchError
from loadtest.benches.batch_fleet import PROBE, Layout
from tagmill_wire import frames
from tagmill_wire.messages import TOKEN_SCHEME
from tagmill_wire.pagehead import PageHead
from tagmill_worker import pages

SECONDS = 60.0
JSON = "application/json"
# More requests at once than a server has threads: each gets one.
WARM_CLIENTS = 32
WARM_ROUNDS = 2


@dataclass(frozen=True)
class Server:
    """Where it listens, and what is shown to it. `incarnation`: the database's."""

    listen: str
    user_token: str
    worker_token: str
    incarnation: str = ""


@dataclass
class Traffic:
    """`bodies` of the answers with documents, as they came, whether they are zstd, and the
    dictionaries that they need."""

    round_trips: int = 0
    received: int = 0
    bodies: list[tuple[bytes, bool, Sequence[bytes]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, body: bytes) -> None:
        with self._lock:
            self.round_trips += 1
            self.received += len(body)

    def add(self, body: bytes, is_zstd: bool = False, dictionaries: Sequence[bytes] = ()) -> None:
        self.count(body)
        with self._lock:
            self.bodies.append((body, is_zstd, dictionaries))


class Link:
    """One connection."""

    def __init__(self, listen: str, headers: Mapping[str, str]) -> None:
        host, _, port = listen.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)
        self._headers = dict(headers)

    def ask(self, path: str) -> tuple[int, Any, bytes]:
        """Status, headers and body."""
        self._connection.request("GET", f"/api/v1/{path}", headers=self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def get(self, path: str) -> tuple[Any, bytes]:
        """Raises BenchError for whatever is no 200."""
        status, headers, body = self.ask(path)
        if status != HTTPStatus.OK:
            raise BenchError(f"{path}: {status} {body[:200]!r}")
        return headers, body

    def close(self) -> None:
        self._connection.close()


def singly(server: Server, layout: Layout, in_flight: int) -> Traffic:
    """Each document by itself, in the order in which they were stored first."""
    headers = {"Authorization": f"Token {server.user_token}"}

    def read(link: Link, name: str, found: Traffic) -> None:
        _, body = link.get(f"nodes/{name}/document?probe={PROBE}")
        found.add(body)

    return _shared(lambda: Link(server.listen, headers), list(layout.texts), in_flight, read)


def by_groups(
    server: Server, layout: Layout, in_flight: int, known: dict[int, bytes], *, is_packed: bool
) -> Traffic:
    """A request for each group, as a worker sends it, and one for each dictionary that is not
    known yet. `is_packed`: as a worker of today, which takes documents as they are at rest."""
    headers = {
        "Authorization": f"{TOKEN_SCHEME} {server.worker_token}",
        "Accept": f"{frames.NAMED_TYPE}, {JSON}" if is_packed else JSON,
        "Accept-Encoding": "zstd",
    }
    lock = threading.Lock()

    def fetch(link: Link, group: int, key: int, found: Traffic) -> bytes:
        with lock:
            if key not in known:
                _, body = link.get(f"partitions/{group}/dictionaries/{key}")
                found.count(body)
                known[key] = body
            return known[key]

    def read(link: Link, group: int, found: Traffic) -> None:
        after: int | None = None
        while True:
            asked = {"incarnation": server.incarnation} | (
                {} if after is None else {"after": after}
            )
            head, body = link.get(f"partitions/{group}/nodes?{urlencode(asked)}")
            named = frames.named(head.get(frames.DICTIONARIES))
            dictionaries = [fetch(link, group, key, found) for key in named]
            found.add(body, head.get("Content-Encoding") == "zstd", dictionaries)
            after = PageHead.read(head.get).next
            if after is None:
                return

    return _shared(lambda: Link(server.listen, headers), layout.groups, in_flight, read)


def _shared(
    connect: Callable[[], Link],
    items: Sequence[Any],
    in_flight: int,
    read: Callable[[Link, Any, Traffic], None],
) -> Traffic:
    """By so many clients, each of which takes the next item when it has one."""
    found, left = Traffic(), deque(items)

    def work() -> None:
        link = connect()
        try:
            while True:
                try:
                    item = left.popleft()
                except IndexError:
                    return
                read(link, item, found)
        finally:
            link.close()

    if in_flight == 1:
        work()
        return found
    with ThreadPoolExecutor(in_flight) as clients:
        for client in [clients.submit(work) for _ in range(in_flight)]:
            client.result()
    return found


def warm(server: Server) -> None:
    """Let the server's threads connect to the database, by questions that read no document. Raises
    BenchError where it does not come to answer."""
    asked = [
        ("tags/there-is-none", f"Token {server.user_token}"),
        (f"partitions/0/nodes?incarnation={server.incarnation}", f"Worker {server.worker_token}"),
    ]

    def ask(path: str, token: str) -> None:
        link = Link(server.listen, {"Authorization": token})
        try:
            # The first question on a connection that was ended may be answered with 503.
            for _ in range(WARM_ROUNDS):
                status, _, body = link.ask(path)
            if status != HTTPStatus.NOT_FOUND:
                raise BenchError(f"{path}: {status} {body[:200]!r}")
        finally:
            link.close()

    with ThreadPoolExecutor(WARM_CLIENTS) as clients:
        for path, token in asked:
            for client in [clients.submit(ask, path, token) for _ in range(WARM_CLIENTS)]:
                client.result()


def wrong(found: Traffic, layout: Layout, *, is_single: bool) -> int:
    """How many documents were not read as they were stored."""
    if is_single:
        read = [body.decode() for body, *_ in found.bodies]
    else:
        read = []
        for body, is_zstd, dictionaries in found.bodies:
            head = PageHead(0, None, is_empty=False)
            page = pages.read(head, 0, body, is_zstd, dictionaries=dictionaries)
            read += [(probes or {}).get(PROBE, "") for _, probes in pages.nodes(page.data)]
    stored = sorted(layout.texts.values())
    return sum(one != two for one, two in zip(sorted(read), stored, strict=False)) + abs(
        len(read) - len(stored)
    )
