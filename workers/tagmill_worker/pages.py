"""Pages: the body of one batch, compressed as it came.

The worker's own process never unpacks a page: how to go on is in the answer's headers. Dictionaries
that the answer names are put behind the batch, so that a page needs nothing else for ever, wherever
it is kept: JOINED, and then each part with its length before it (u32 little-endian).
"""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import zstandard

from tagmill_wire import frames, zstd
from tagmill_wire.messages import Batch, Changes, WireError, load
from tagmill_wire.pagehead import PageHead
from tagmill_worker.errors import AnswerTooLarge, ProtocolError

# Above any page that a server sends (64 MiB of XML at most, or one node with 16 documents of 7 MiB;
# JSON's quotes double that at worst), below what a small machine can spare.
MAX_BYTES = 256 * 1024 * 1024
# Only used for servers that do not compress.
ZSTD_LEVEL = 1
# No zstd begins so.
JOINED = b"\0TAGMILL"
LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Page:
    """`data` is the batch (JSON, or packed: `frames`), zstd-compressed, with the dictionaries that
    it names behind it; `next` the `after` of the following page.

    `key` names the page in this process: the child may hold an image of it under that key.
    """

    partition: int
    rev: int
    next: int | None
    is_empty: bool
    data: bytes
    key: int = field(default_factory=itertools.count(1).__next__, compare=False)

    @property
    def size(self) -> int:
        return len(self.data)


def read(
    head: PageHead,
    partition: int,
    data: bytes,
    is_zstd: bool,
    most_bytes: int = MAX_BYTES,
    *,
    dictionaries: Sequence[bytes] = (),
) -> Page:
    """A page from a response's head and body, which stays packed. `dictionaries`: those that it
    names, zstd-compressed. Raises ProtocolError."""
    if is_zstd:
        _bound(data, most_bytes)
    else:
        data = zstandard.compress(data, ZSTD_LEVEL)
    return Page(partition, head.rev, head.next, head.is_empty, _joined(data, dictionaries))


def brought(partition: int, changes: Changes, most_bytes: int = MAX_BYTES) -> Page:
    """The page that a lease brings along. Raises ProtocolError."""
    try:
        data = base64.b64decode(changes.data, validate=True)
    except ValueError as error:
        raise ProtocolError(f"not a page: {error}") from None
    if data:
        _bound(data, most_bytes)
    return Page(partition, changes.rev, None, not data, data)


def packed(partition: int, rev: int, data: bytes, most_bytes: int = MAX_BYTES) -> Page:
    """A page that somebody else has kept. Raises ProtocolError."""
    batch, *dictionaries = _parts(data)
    _bound(batch, most_bytes)
    for item in dictionaries:
        _bound(item, frames.MAX_DICTIONARY_BYTES)
    return Page(partition, rev, None, False, data)


def _joined(batch: bytes, dictionaries: Sequence[bytes]) -> bytes:
    if not dictionaries:
        return batch
    parts = [JOINED]
    for part in (batch, *dictionaries):
        parts += [LENGTH.pack(len(part)), part]
    return b"".join(parts)


def _parts(data: bytes) -> list[bytes]:
    """The batch, and the dictionaries behind it. Raises ProtocolError."""
    if not data.startswith(JOINED):
        return [data]
    found = []
    at = len(JOINED)
    while at < len(data):
        if at + LENGTH.size > len(data):
            raise ProtocolError("a page that is cut short")
        (size,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size + size
        found.append(data[at - size : at])
    if at != len(data) or not 1 <= len(found) <= 1 + frames.MAX_NAMED:
        raise ProtocolError("a page of another size than it says")
    return found


def _bound(data: bytes, most_bytes: int) -> None:
    """Raises AnswerTooLarge for a page that would be unpacked to more, and ProtocolError."""
    try:
        zstd.check_size(data, most_bytes)
    except zstd.TooLarge as error:
        raise AnswerTooLarge(f"a page of {error}") from None
    except ValueError as error:
        raise ProtocolError(str(error)) from None


def unpack(data: bytes, most_bytes: int = MAX_BYTES) -> bytes:
    """The decompressed bytes, `most_bytes` at most. Raises ProtocolError."""
    try:
        return zstd.unpack(data, most_bytes)
    except ValueError as error:
        raise ProtocolError(str(error)) from None


def nodes(data: bytes) -> list[tuple[int, dict[str, str] | None]]:
    """The (slot, probes) of a page. Raises ProtocolError."""
    return [(slot, probes) for slot, _, probes in entries(data)]


def entries(data: bytes) -> list[tuple[int, int, dict[str, str] | None]]:
    """The (slot, rev, probes) of a page. Raises ProtocolError."""
    batch, *others = _parts(data)
    plain = unpack(batch)
    dictionaries = [unpack(item, frames.MAX_DICTIONARY_BYTES) for item in others]
    try:
        if frames.is_packed(plain):
            return frames.load(plain, MAX_BYTES, dictionaries)
        return [(node.slot, node.rev, node.probes) for node in load(Batch, plain).nodes]
    except WireError as error:
        raise ProtocolError(f"not a batch: {error}") from None
