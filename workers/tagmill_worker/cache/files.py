"""The files of the cache, and what makes one believed.

```text
<directory>/tagmill-cache.lock     whoever uses the directory has it locked
  <incarnation>/<partition>/
    NAME.pages                     what one fetch brought
    PAGE.image, PAGE.slots         the kernel's image of a page (evaluators/saved.py)
    NAME.shared                    empty: others have what this file and those before it have
  aside/                           what was not believed
```

NAME is number-rev-schema-digest. A partition is the file of its newest whole fetch, and those of
the deltas since, by consecutive numbers; a delta that is missing ends the chain, and the partition
is at an older rev, which is as true. A file is never changed: it is written under another name,
flushed, and renamed.

```text
"TAGMILLC"  8 bytes
schema      u32 little-endian
size        u32 little-endian, of the head
digest      32 bytes, BLAKE2b of the head
head        JSON: incarnation, partition, number, since, rev, pages: [[rev, size, digest]...]
pages       their bytes (`pages`), one after the other
```

So the digest in the name covers every byte. Nothing of a file is used before its digests are found
right: a power cut may leave any of them torn, whatever was flushed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tagmill_worker.pages import Page

MAGIC = b"TAGMILLC"
# Raised by every change to what a file means; files of another schema are not read.
SCHEMA = 2
START = struct.Struct("<8sII32s")
DIGEST_BYTES = 32
# 65,536 slots in pages of one node, at some 100 bytes each.
MAX_HEAD_BYTES = 16 * 2**20
# A name has the digest's beginning, to tell files apart. What is believed is the whole digest.
NAME_DIGITS = 16

PAGES, IMAGE, SLOTS, PARTIAL = ".pages", ".image", ".slots", ".partial"
SHARED = ".shared"
ASIDE = "aside"

_NAME = re.compile(r"(\d{8})-(\d{1,18})-(\d{1,9})-([0-9a-f]{16})\.pages")
_PARTITION = re.compile(r"\d{1,18}")


class Damaged(Exception):
    """The file is not what its name says. The message says how."""


class OtherVersion(Damaged):
    """A whole file, which another version of the worker has written."""


@dataclass(frozen=True, slots=True)
class Head:
    """`since`: the rev that a delta begins at, None for a whole fetch. `rev`: what the partition is
    at with it. `pages`: (rev, size, digest) of each."""

    incarnation: str
    partition: int
    number: int
    since: int | None
    rev: int
    pages: list[tuple[int, int, str]]

    def dump(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return orjson.dumps(fields)


@dataclass(frozen=True, slots=True)
class Stored:
    """One file that is there: its head was believed, its pages not yet."""

    path: Path
    head: Head
    size: int


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def is_incarnation(name: str) -> bool:
    """Whether it is fit for the name of a directory. What has another is not ours to delete."""
    return bool(re.fullmatch(r"[0-9A-Za-z-]{1,64}", name)) and name != ASIDE


class Place(NamedTuple):
    """Where a partition is."""

    directory: Path
    incarnation: str
    partition: int

    @property
    def folder(self) -> Path:
        return self.directory / self.incarnation / str(self.partition)


def size_of(pages: Sequence[Page]) -> int:
    """About what `write` will take."""
    return START.size + 200 + sum(page.size + 100 for page in pages)


def write(place: Place, number: int, since: int | None, rev: int, pages: Sequence[Page]) -> Stored:
    """Raises OSError, and leaves nothing then that would be believed."""
    listed = [(page.rev, page.size, digest(page.data)) for page in pages]
    head = Head(place.incarnation, place.partition, number, since, rev, listed)
    text = head.dump()
    hashed = hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()
    name = f"{number:08d}-{rev}-{SCHEMA}-{hashed.hex()[:NAME_DIGITS]}{PAGES}"
    path = place.folder / name
    # Not their parents: a directory that has vanished stays so, and is noticed.
    path.parent.parent.mkdir(exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    start = START.pack(MAGIC, SCHEMA, len(text), hashed)
    size = replace(path, [start, text, *(page.data for page in pages)])
    return Stored(path, head, size)


def replace(path: Path, parts: Sequence[bytes]) -> int:
    """Writes a file as a whole or not at all; its size. Raises OSError.

    Flushed before it is renamed, so that a power cut does not leave a name with nothing under it.
    The directory is not: a name that is lost is fetched again.
    """
    partial = path.with_suffix(PARTIAL)
    try:
        with partial.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return sum(map(len, parts))


def look(path: Path) -> Stored:
    """A file by its head and its size; the pages are not read. Raises Damaged and OSError."""
    with path.open("rb") as file:
        head, size = _head(path, file)
        actual = os.fstat(file.fileno()).st_size
    if actual != size:
        raise Damaged(f"{actual} bytes, not {size}")
    return Stored(path, head, size)


def read(stored: Stored) -> list[Page]:
    """The pages of a file, each found right. Raises Damaged and OSError."""
    with stored.path.open("rb") as file:
        head, _ = _head(stored.path, file)
        if head != stored.head:
            raise Damaged("another head than before")
        pages = []
        for number, (rev, size, expected) in enumerate(head.pages):
            data = file.read(size)
            if digest(data) != expected:
                raise Damaged(f"page {number} has another digest")
            pages.append(Page(head.partition, rev, None, False, data))
        if file.read(1):
            raise Damaged("bytes after the last page")
    return pages


def _head(path: Path, file: Any) -> tuple[Head, int]:
    """The head, and the size that the file must have."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise Damaged("not a name of this cache")
    start = file.read(START.size)
    if len(start) < START.size or not start.startswith(MAGIC):
        raise Damaged("not a file of this cache")
    _, schema, length, hashed = START.unpack(start)
    if schema != SCHEMA:
        if str(schema) == named[3]:
            raise OtherVersion(f"it is of schema {schema}, not {SCHEMA}")
        raise Damaged(f"schema {schema}, not {SCHEMA}")
    text = file.read(length) if length <= MAX_HEAD_BYTES else b""
    if hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest() != hashed:
        raise Damaged("the head has another digest")
    head = _load(text)
    number, rev, _, digits = named.groups()
    place = (str(head.partition), head.incarnation)
    if (path.parent.name, path.parent.parent.name) != place:
        raise Damaged(f"it is of partition {place[0]} in incarnation {place[1]}")
    if (int(number), int(rev), digits) != (head.number, head.rev, hashed.hex()[:NAME_DIGITS]):
        raise Damaged("its name is another file's")
    return head, START.size + length + sum(size for _, size, _ in head.pages)


def _load(text: bytes) -> Head:
    # Its digest is right: it is what `dump` gave.
    found = orjson.loads(text)
    found["pages"] = [tuple(page) for page in found["pages"]]
    return Head(**found)


def partitions(incarnation: Path) -> list[int]:
    """Those with a directory of their own. Raises OSError."""
    if not incarnation.exists():
        return []
    names = (path.name for path in incarnation.iterdir())
    return sorted(int(name) for name in names if _PARTITION.fullmatch(name))


def chain(found: Sequence[Stored]) -> list[Stored]:
    """A partition's newest whole fetch, and the deltas after it without a gap."""
    ordered = sorted(found, key=lambda item: item.head.number)
    starts = [n for n, item in enumerate(ordered) if item.head.since is None]
    if not starts:
        return []
    kept = ordered[starts[-1] : starts[-1] + 1]
    for item in ordered[starts[-1] + 1 :]:
        last = kept[-1].head
        since = item.head.since
        if item.head.number != last.number + 1 or since is None or since > last.rev:
            break
        kept.append(item)
    return kept
