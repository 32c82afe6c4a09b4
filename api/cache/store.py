"""Bodies in memory: bounded in bytes, and not swept away by whoever reads everything once.

The order of eviction is S3-FIFO's: what is new waits in a short queue, and only what is asked for
again there gets into the long one; what left the short queue a while ago goes into the long one at
once. So a scan pushes out what came with it, and not what many ask for.

A revision that is superseded is never asked for again: the first that names another one of the same
subject drops it. Used from one thread alone.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from api.cache.entry import Entry, Name

# What an entry costs beyond its body: the name, the bytes object, the slots of the dictionaries.
OVERHEAD = 1024
# The short queue's part of all bytes.
SHORT_PART = 0.1
# An entry that takes more than this part would push out too many others.
MAX_PART = 0.5
# Asked for so often, an entry goes round the long queue so often before it is evicted.
MAX_USES = 3
# Names of evicted entries that are remembered.
MAX_GHOSTS = 4096

Subject = tuple[str, str]


@dataclass(slots=True)
class _Kept:
    entry: Entry
    size: int
    uses: int = 0
    is_long: bool = False


@dataclass(slots=True)
class _Revision:
    revision: str
    names: set[Name] = field(default_factory=set)


class Store:
    """`most` is in bytes; 0 keeps nothing. `evicted` is called with a keyspace and the bytes that
    went because there was no room."""

    def __init__(self, most: int, evicted: Callable[[str, int], None]) -> None:
        self._most = most
        self._evicted = evicted
        self._short: OrderedDict[Name, _Kept] = OrderedDict()
        self._long: OrderedDict[Name, _Kept] = OrderedDict()
        self._short_size = 0
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._subjects: dict[Subject, _Revision] = {}
        self.size = 0
        self.sizes: Counter[str] = Counter()
        self.entries: Counter[str] = Counter()

    def has(self, name: Name) -> bool:
        """In any thread, where the answer is a guess."""
        return name in self._short or name in self._long

    def get(self, name: Name) -> Entry | None:
        self._supersede(name)
        kept = self._short.get(name) or self._long.get(name)
        if kept is None:
            return None
        kept.uses = min(kept.uses + 1, MAX_USES)
        return kept.entry

    def put(self, name: Name, entry: Entry) -> bool:
        """Whether it is kept: it is not where it is too large."""
        self._supersede(name)
        self._remove(name)
        size = len(entry.body) + OVERHEAD
        if size > self._most * MAX_PART:
            return False
        is_long = hash(name) in self._ghosts
        kept = _Kept(entry, size, is_long=is_long)
        (self._long if is_long else self._short)[name] = kept
        self._short_size += 0 if is_long else size
        self._count(name, size, 1)
        of = self._subjects.setdefault((name.keyspace, name.subject), _Revision(name.revision))
        of.names.add(name)
        while self.size > self._most:
            self._evict()
        return True

    def drop(self, keyspace: str | None = None, subject: str | None = None) -> None:
        """Drop everything, or what is of the keyspace, or of the subject."""
        for found in list(self._subjects):
            if keyspace in (None, found[0]) and subject in (None, found[1]):
                self._drop(found)

    def _supersede(self, name: Name) -> None:
        subject = name.keyspace, name.subject
        known = self._subjects.get(subject)
        if known is not None and known.revision != name.revision:
            self._drop(subject)

    def _drop(self, subject: Subject) -> None:
        for name in list(self._subjects[subject].names):
            self._remove(name)

    def _remove(self, name: Name) -> _Kept | None:
        kept = self._short.pop(name, None) or self._long.pop(name, None)
        if kept is None:
            return None
        if not kept.is_long:
            self._short_size -= kept.size
        self._count(name, -kept.size, -1)
        subject = name.keyspace, name.subject
        of = self._subjects[subject]
        of.names.discard(name)
        if not of.names:
            del self._subjects[subject]
        return kept

    def _count(self, name: Name, size: int, entries: int) -> None:
        self.size += size
        self.sizes[name.keyspace] += size
        self.entries[name.keyspace] += entries

    def _evict(self) -> None:
        """One step of S3-FIFO: an entry is evicted, or goes to the end of the long queue."""
        if self._short and (self._short_size > SHORT_PART * self._most or not self._long):
            name, kept = next(iter(self._short.items()))
            if kept.uses:
                del self._short[name]
                self._short_size -= kept.size
                kept.uses, kept.is_long = 0, True
                self._long[name] = kept
                return
            self._ghosts[hash(name)] = None
            if len(self._ghosts) > MAX_GHOSTS:
                self._ghosts.popitem(last=False)
        else:
            name, kept = next(iter(self._long.items()))
            if kept.uses:
                kept.uses -= 1
                self._long.move_to_end(name)
                return
        self._remove(name)
        self._evicted(name.keyspace, kept.size)
