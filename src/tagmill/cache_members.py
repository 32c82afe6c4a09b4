"""The memcached servers of `TAGMILL_CACHE_SERVERS`: which there are, and which of them answer.

The first is this host's own. Others may come and go: an item `dns:name:port` is all addresses of
a name, and `file:/path` the lines of a file. Both are looked up again by a thread, since a look-up
may take long; one that fails keeps what the last one found.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from pymemcache.client.base import PooledClient

from tagmill.breaker import Breaker
from tagmill.errors import ConfigurationError

log = structlog.get_logger("tagmill.cache")

PORT = 11211
LOOK_UP_SECONDS = 5.0
# Connections of this process to one member.
MAX_CONNECTIONS = 16
# Servers of one list: a file or a name that has more is wrong.
MAX_MEMBERS = 256
DNS, FILE = "dns:", "file:"

Address = tuple[str, int]


class Member:
    """One server, with its connections; for any thread."""

    def __init__(self, address: Address, seconds: float) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}"
        self.breaker = Breaker(f"the cache server {self.name}")
        self.client = PooledClient(
            address,
            connect_timeout=seconds,
            timeout=seconds,
            no_delay=True,
            max_pool_size=MAX_CONNECTIONS,
            default_noreply=False,
        )

    def score(self, key: str) -> bytes:
        """Rendezvous hashing: who has the highest is first for the key. Of the others nothing
        changes when one comes or goes."""
        return hashlib.blake2b(f"{self.name} {key}".encode(), digest_size=8).digest()


class Members:
    """The members in the order for a key. `look_up` is for tests: the addresses of a name."""

    def __init__(
        self,
        text: str,
        seconds: float,
        look_up: Callable[[str, int], Iterable[Address]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._items = tuple(item.strip() for item in text.split(",") if item.strip())
        self._seconds = seconds
        self._look_up = look_up or addresses_of
        self._clock = clock
        self._lock, self._refreshing = threading.Lock(), threading.Lock()
        self._is_looking = False
        self._looked_at = clock()
        self._found: dict[str, tuple[Address, ...]] = {}
        self._members: dict[Address, Member] = {}
        self._changes = any(item.startswith((DNS, FILE)) for item in self._items)
        self.refresh()

    def local(self) -> Member | None:
        """This host's own."""
        return next(iter(self._now().values()), None)

    def others(self, key: str) -> list[Member]:
        """All but the local one, in the order for the key."""
        return sorted(list(self._now().values())[1:], key=lambda member: member.score(key))[::-1]

    def ordered(self, key: str) -> list[Member]:
        """All of them, in the order for the key, which is the same on every host."""
        return sorted(self._now().values(), key=lambda member: member.score(key))[::-1]

    def refresh(self) -> None:
        """Look everything up again. A member that stays keeps its connections."""
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        addresses = dict.fromkeys(
            address for item in self._items for address in self._addresses(item)
        )
        known = self._members
        self._members = {
            address: known.get(address) or Member(address, self._seconds)
            for address in list(addresses)[:MAX_MEMBERS]
        }
        gone = known.keys() - self._members.keys()
        came = self._members.keys() - known.keys()
        if known and (gone or came):
            log.info("cache servers changed", came=sorted(came), gone=sorted(gone))
        for address in gone:
            known[address].client.close()

    def _now(self) -> dict[Address, Member]:
        if self._changes and self._clock() - self._looked_at >= LOOK_UP_SECONDS:
            self._look_again()
        return self._members

    def _look_again(self) -> None:
        with self._lock:
            if self._is_looking:
                return
            self._is_looking = True
        threading.Thread(target=self._looked, name="cache-servers", daemon=True).start()

    def _looked(self) -> None:
        try:
            self.refresh()
        finally:
            self._looked_at = self._clock()
            self._is_looking = False

    def _addresses(self, item: str) -> Sequence[Address]:
        try:
            found = tuple(self._addresses_now(item))
        except (OSError, ConfigurationError) as error:
            kept = self._found.get(item, ())
            log.warning("cache servers not found", item=item, error=str(error), kept=len(kept))
            return kept
        self._found[item] = found
        return found

    def _addresses_now(self, item: str) -> Iterable[Address]:
        if item.startswith(FILE):
            lines = Path(item.removeprefix(FILE)).read_text().split()
            return [parsed(line) for line in lines]
        if item.startswith(DNS):
            return self._look_up(*parsed(item.removeprefix(DNS)))
        return [parsed(item)]


def parsed(text: str) -> Address:
    """`host`, `host:port` or `[address]:port`. Raises ConfigurationError."""
    try:
        found = urlsplit(f"//{text}")
        host, port = found.hostname, PORT if found.port is None else found.port
    except ValueError:
        host, port = None, 0
    if not host or not port or found.path or found.username or len(text.split()) != 1:
        raise ConfigurationError(
            f"TAGMILL_CACHE_SERVERS: {text!r} is no server: write host:port, dns:name:port or"
            " file:/path, separated by commas"
        )
    return host, port


def check(text: str) -> None:
    """Raises ConfigurationError, before anything is looked up."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    for item in items:
        if not item.startswith(FILE):
            parsed(item.removeprefix(DNS))


def addresses_of(name: str, port: int) -> list[Address]:
    """All addresses of a name, in an order that is the same at each look-up. Raises OSError."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return sorted({(str(info[4][0]), port) for info in found})
