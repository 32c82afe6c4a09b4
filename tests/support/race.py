"""Reads against writes, over two hosts whose cache servers are disturbed: is any body old or torn?

The truth is a counter for each subject, which only grows, as a revision does. A reader looks it up,
asks the cache for that revision, and builds where it has none, as a server does. What it gets must
be of the revision that it asked for, or a newer one, and whole.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from api.cache.entry import Entry, Name
from api.cache.shared import Shared
from tagmill.cache_members import Members
from tagmill.local_first import LocalFirstCache
from tests.support.memcached import Memcached

SUBJECTS = 20
READERS = 4
# A hundred of them fill the smaller server, which evicts.
BODY_BYTES = 20_000
PATIENCE = 0.05
# So often a reader looks up who is a member: a server does every few seconds.
LOOK_AGAIN = 0.01


@dataclass
class Found:
    reads: int = 0
    hits: int = 0
    writes: int = 0
    disturbances: int = 0
    stale: int = 0
    torn: int = 0


class Truth:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revisions = [0] * SUBJECTS

    def revision(self, subject: int) -> int:
        return self._revisions[subject]

    def write(self, subject: int) -> None:
        with self._lock:
            self._revisions[subject] += 1


def body(subject: int, revision: int) -> bytes:
    drawn = random.Random(f"{subject} {revision}")
    return f"{subject} {revision}\n".encode() + drawn.randbytes(BODY_BYTES)


class Trouble:
    """What happens to the servers: they are frozen, emptied, and restarted with what they had a
    while ago; and the list that names them loses one and gets it back."""

    def __init__(self, servers: Sequence[Memcached], stop: threading.Event, listed: Path) -> None:
        self._servers = servers
        self._stop = stop
        self._listed = listed
        self._drawn = random.Random(1)
        self._before: dict[str, bytes] = {}
        self.count = 0

    def run(self) -> None:
        while not self._stop.wait(0.05):
            self._once()
            self.count += 1

    def _once(self) -> None:
        server = self._drawn.choice(self._servers)
        match self._drawn.choice(("freeze", "freeze", "empty", "restart", "leave")):
            case "freeze":
                server.freeze()
                self._stop.wait(2 * PATIENCE)
                server.thaw()
            case "empty":
                with server.client() as client:
                    client.flush_all()
            case "restart":
                old, self._before = self._before, server.contents()
                server.restart(old)
            case "leave":
                others = [other.place for other in self._servers if other is not server]
                self._listed.write_text("\n".join(others))
                self._stop.wait(2 * PATIENCE)
                list_all(self._servers, self._listed)


def list_all(servers: Sequence[Memcached], listed: Path) -> None:
    listed.write_text("\n".join(server.place for server in servers))


class Race:
    """Two hosts, each with a memcached of its own, which is the other's remote one, and a third
    that comes and goes."""

    def __init__(self, reads: int, seconds: float, listed: Path) -> None:
        self._reads = reads
        self._end = time.monotonic() + seconds
        self._truth = Truth()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._servers = [Memcached(), Memcached("-m", "2"), Memcached()]
        self._listed = listed
        list_all(self._servers, listed)
        self._trouble = Trouble(self._servers, self._stop, listed)
        self.found = Found()

    def run(self) -> Found:
        """Until there were so many reads, or the time is over."""
        work = [threading.Thread(target=self._read, args=(number,)) for number in range(READERS)]
        work += [threading.Thread(target=self._write), threading.Thread(target=self._trouble.run)]
        try:
            for thread in work:
                thread.start()
            for thread in work:
                thread.join()
        finally:
            self._stop.set()
            for server in self._servers:
                server.stop()
        self.found.disturbances = self._trouble.count
        return self.found

    def _read(self, number: int) -> None:
        drawn = random.Random(number)
        members = Members(f"{self._servers[number % 2].place},file:{self._listed}", PATIENCE)
        cache = LocalFirstCache("", {"OPTIONS": {"members": members}})
        shared = Shared(1 << 20, b"race", lambda: cache)
        while not self._stop.is_set():
            if drawn.random() < LOOK_AGAIN:
                members.refresh()
            subject = drawn.randrange(SUBJECTS)
            revision = self._truth.revision(subject)
            name = Name("tag_nodes", str(subject), "", str(revision))
            entry, _ = shared.take(name, lambda _: True)
            is_hit = entry is not None
            if entry is None:
                newest = self._truth.revision(subject)
                entry = Entry.of(body(subject, newest), revision=str(newest))
                shared.put(name._replace(revision=str(newest)), entry, name)
            self._judge(entry, subject, revision, is_hit)

    def _judge(self, entry: Entry, subject: int, revision: int, is_hit: bool) -> None:
        plain = b"".join(entry.pieces())
        of, _, at = plain.partition(b"\n")[0].partition(b" ")
        with self._lock:
            self.found.reads += 1
            self.found.hits += is_hit
            self.found.torn += plain != body(int(of), int(at))
            self.found.stale += int(of) != subject or int(at) < revision
            if self.found.reads >= self._reads or time.monotonic() > self._end:
                self._stop.set()

    def _write(self) -> None:
        drawn = random.Random(0)
        while not self._stop.wait(0.002):
            self._truth.write(drawn.randrange(SUBJECTS))
            self.found.writes += 1
