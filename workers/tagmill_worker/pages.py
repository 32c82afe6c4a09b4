"""Pages: the body of one batch, compressed as it came.

The worker's own process never decodes the documents: of a page it reads only how to go on.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

import orjson
import zstandard

from tagmill_wire import zstd
from tagmill_wire.messages import Batch, WireError, load
from tagmill_worker.errors import AnswerTooLarge, ProtocolError

# Above any page that a server sends (64 MiB of XML at most, or one node with 16 documents of 7 MiB;
# JSON's quotes double that at worst), below what a small machine can spare.
MAX_BYTES = 256 * 1024 * 1024
# Only used for servers that do not compress.
ZSTD_LEVEL = 1

# The order is that of `messages.Batch`. Both are unambiguous in valid JSON: nothing comes before
# the head, and the last "}" closes the batch, so that `,"next":N` before it is the batch's own.
HEAD = re.compile(rb'\{"partition":(\d{1,18}),"rev":(\d{1,18}),"nodes":\[(\]?)')
TAIL = re.compile(rb',"next":(null|\d{1,18})\}\Z')
TAIL_BYTES = 40


@dataclass(frozen=True, slots=True)
class Page:
    """`data` is the batch, zstd-compressed; `next` the `after` of the following page.

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


def read(data: bytes, is_zstd: bool, most_bytes: int = MAX_BYTES) -> Page:
    """A page from a response's body. Raises ProtocolError."""
    body = unpack(data, most_bytes) if is_zstd else data
    if not is_zstd:
        data = zstandard.compress(body, ZSTD_LEVEL)
    head, tail = HEAD.match(body), TAIL.search(body[-TAIL_BYTES:])
    if head is None or tail is None:
        return _read_slowly(body, data)
    follower = None if tail[1] == b"null" else int(tail[1])
    return Page(int(head[1]), int(head[2]), follower, bool(head[3]), data)


def _read_slowly(body: bytes, data: bytes) -> Page:
    """Another order of keys, or spaces: still JSON of the same schema."""
    batch = decode(body)
    return Page(batch.partition, batch.rev, batch.next, not batch.nodes, data)


def unpack(data: bytes, most_bytes: int = MAX_BYTES) -> bytes:
    """The decompressed bytes, `most_bytes` at most. Raises ProtocolError."""
    try:
        return zstd.unpack(data, most_bytes)
    except zstd.TooLarge as error:
        raise AnswerTooLarge(f"a page of {error}") from None
    except ValueError as error:
        raise ProtocolError(str(error)) from None


def decode(body: bytes) -> Batch:
    """The batch, with every field checked. Raises ProtocolError."""
    try:
        return load(Batch, body)
    except WireError as error:
        raise ProtocolError(f"not a batch: {error}") from None


def nodes(data: bytes) -> list[tuple[int, dict[str, str] | None]]:
    """The (slot, probes) of a page. Raises ProtocolError."""
    return [(slot, probes) for slot, _, probes in entries(data)]


def entries(data: bytes) -> list[tuple[int, int, dict[str, str] | None]]:
    """The (slot, rev, probes) of a page. Raises ProtocolError.

    Checks less than `decode`, which costs a tenth of an evaluation.
    """
    try:
        return [
            (int(node["slot"]), int(node["rev"]), node["probes"])
            for node in orjson.loads(unpack(data))["nodes"]
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"not a batch: {error!r}") from None
