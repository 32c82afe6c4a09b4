"""Pages: the body of one batch, compressed as it came.

The worker's own process never unpacks a page: how to go on is in the answer's headers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import zstandard

from tagmill_wire import frames, zstd
from tagmill_wire.messages import Batch, WireError, load
from tagmill_wire.pagehead import PageHead
from tagmill_worker.errors import AnswerTooLarge, ProtocolError

# Above any page that a server sends (64 MiB of XML at most, or one node with 16 documents of 7 MiB;
# JSON's quotes double that at worst), below what a small machine can spare.
MAX_BYTES = 256 * 1024 * 1024
# Only used for servers that do not compress.
ZSTD_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Page:
    """`data` is the batch (JSON, or packed: `frames`), zstd-compressed; `next` the `after` of the
    following page.

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
    head: PageHead, partition: int, data: bytes, is_zstd: bool, most_bytes: int = MAX_BYTES
) -> Page:
    """A page from a response's head and body, which stays packed. Raises ProtocolError."""
    if is_zstd:
        _bound(data, most_bytes)
    else:
        data = zstandard.compress(data, ZSTD_LEVEL)
    return Page(partition, head.rev, head.next, head.is_empty, data)


def packed(partition: int, rev: int, data: bytes, most_bytes: int = MAX_BYTES) -> Page:
    """A page that somebody else has kept. Raises ProtocolError."""
    _bound(data, most_bytes)
    return Page(partition, rev, None, False, data)


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
    plain = unpack(data)
    try:
        if frames.is_packed(plain):
            return frames.load(plain, MAX_BYTES)
        return [(node.slot, node.rev, node.probes) for node in load(Batch, plain).nodes]
    except WireError as error:
        raise ProtocolError(f"not a batch: {error}") from None
