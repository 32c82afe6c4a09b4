"""Reads against writes, over two hosts whose cache servers are disturbed: is any body old or torn?

The truth is a counter for each subject, which only grows, as a revision does. A reader looks it up,
asks the cache for that revision, and builds where it has none, as a server does. What it gets must
be of the revision that it asked for, or a newer one, and whole.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

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


class Race:
    """Two hosts, each with a memcached of its own, which is the other's remote one."""

    def __init__(self, reads: int, seconds: float) -> None:
        self._reads = reads
        self._end = time.monotonic() + seconds
        self._truth = Truth()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._servers = [Memcached(), Memcached("-m", "2")]
        self.found = Found()

    def run(self) -> Found:
        """Until there were so many reads, or the time is over."""
        work = [threading.Thread(target=self._read, args=(number,)) for number in range(READERS)]
        work += [threading.Thread(target=self._write), threading.Thread(target=self._disturb)]
        try:
            for thread in work:
                thread.start()
            for thread in work:
                thread.join()
        finally:
            self._stop.set()
            for server in self._servers:
                server.stop()
        return self.found

    def _read(self, number: int) -> None:
        drawn = random.Random(number)
        places = [server.place for server in self._servers][:: 1 if number % 2 else -1]
        options = {"members": Members(",".join(places), PATIENCE)}
        cache = LocalFirstCache("", {"OPTIONS": options})
        shared = Shared(1 << 20, b"race", lambda: cache)
        while not self._stop.is_set():
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

    def _disturb(self) -> None:
        drawn = random.Random(1)
        before: dict[str, bytes] = {}
        while not self._stop.wait(0.05):
            server = drawn.choice(self._servers)
            match drawn.choice(("freeze", "freeze", "empty", "restart")):
                case "freeze":
                    server.freeze()
                    self._stop.wait(2 * PATIENCE)
                    server.thaw()
                case "empty":
                    with server.client() as client:
                        client.flush_all()
                case "restart":
                    old, before = before, server.contents()
                    server.restart(old)
            self.found.disturbances += 1
