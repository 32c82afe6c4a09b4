"""A partition in one body, as workers share it: its pages, and the kernel's image of each.

```text
"TAGMILLS"  8 bytes
schema      u32 little-endian
size        u32 little-endian, of the head
head        JSON: incarnation, partition, rev, pages: [[rev, size, size of the image]...]
pages       each (`pages`), and behind it its image, packed; nothing where there is none
```

Another worker made it, so nothing in it is taken for true: the digest of the whole is the server's,
every number is checked here, and what is packed is checked where it is unpacked (evaluators/saved).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import zstandard

from tagmill_wire import __version__, zstd
from tagmill_worker import pages
from tagmill_worker.errors import AnswerTooLarge, ProtocolError
from tagmill_worker.evaluators import base
from tagmill_worker.pages import Page

MAGIC = b"TAGMILLS"
# Raised by every change to what a body means.
SCHEMA = 2
START = struct.Struct("<8sII")
SLOTS = struct.Struct("<I")
# As an image in a server's store may be at most; and unpacked, with room for what the kernel adds.
MAX_BYTES = 256 * 2**20
MAX_IMAGE_BYTES = 512 * 2**20
# One with more, most of them changes, is quicker read as documents.
MAX_PAGES = 1024
MAX_REV = 2**63 - 1
# An image in columns: 5.6 times smaller at 300 MB a second.
ZSTD_LEVEL = 3


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rev`: what the partition is at with all of it. `pages`: of each the rev, the size, and the
    size of its image, 0 for none; the newest last."""

    incarnation: str
    partition: int
    rev: int
    pages: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Bundle:
    """`packed`: the images, by the key of the page."""

    rev: int
    pages: list[Page]
    packed: dict[int, bytes]


def schema(evaluator: str) -> str:
    """The name of what this worker makes, and can read: another kernel may mean something else by
    the same bytes."""
    version = f"_{base.version(evaluator)}" if evaluator in base.KEEPERS else ""
    return re.sub(r"[^0-9A-Za-z._]", "_", f"{SCHEMA}_{evaluator}{version}_{__version__}")[:64]


def pack(
    incarnation: str, partition: int, rev: int, found: Sequence[tuple[Page, bytes]]
) -> list[bytes]:
    """The parts of a body. Each page with its image, or b""."""
    sizes = [(page.rev, page.size, len(image)) for page, image in found]
    head = msgspec.json.encode(Head(incarnation, partition, rev, sizes))
    parts = [START.pack(MAGIC, SCHEMA, len(head)), head]
    for page, image in found:
        parts += [page.data, image]
    return parts


def unpack(body: bytes, incarnation: str, partition: int, rev: int) -> Bundle:
    """What the server calls so. Raises ProtocolError for anything else."""
    if len(body) < START.size:
        raise ProtocolError("an image that is cut short")
    magic, number, length = START.unpack_from(body)
    if magic != MAGIC or number != SCHEMA:
        raise ProtocolError("an image of another kind")
    view = memoryview(body)
    at = START.size + length
    try:
        head = msgspec.json.decode(view[START.size : at], type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"an image with a wrong head: {error}") from None
    if (head.incarnation, head.partition, head.rev) != (incarnation, partition, rev):
        raise ProtocolError("an image of something else")
    if len(head.pages) > MAX_PAGES or any(
        min(sizes) < 0 or sizes[0] > MAX_REV for sizes in head.pages
    ):
        raise ProtocolError("an image with wrong sizes")
    if at + sum(size + image for _, size, image in head.pages) != len(body):
        raise ProtocolError("an image of another size than it says")
    found: list[Page] = []
    packed: dict[int, bytes] = {}
    for page_rev, size, image in head.pages:
        data = bytes(view[at : at + size])
        at += size
        found.append(pages.packed(partition, page_rev, data))
        if image:
            packed[found[-1].key] = bytes(view[at : at + image])
        at += image
    return Bundle(rev, found, packed)


def pack_image(slots: bytes, image: bytes) -> bytes:
    """Both files of an image (evaluators/saved)."""
    return zstandard.compress(SLOTS.pack(len(slots)) + slots + image, ZSTD_LEVEL)


def unpack_image(packed: bytes) -> tuple[bytes, bytes]:
    """Raises ProtocolError."""
    try:
        plain = zstd.unpack(packed, MAX_IMAGE_BYTES)
    except zstd.TooLarge as error:
        raise AnswerTooLarge(f"an image of {error}") from None
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    if len(plain) < SLOTS.size:
        raise ProtocolError("a packed image that is cut short")
    (size,) = SLOTS.unpack_from(plain)
    begin = SLOTS.size + size
    if begin > len(plain):
        raise ProtocolError("a packed image that is cut short")
    return plain[SLOTS.size : begin], plain[begin:]
