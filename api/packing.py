"""Bodies that are packed: what clients send as gzip is unpacked within bounds, and what they are
sent is packed where they take it and it is worth it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any

import zstandard
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from api.limits import BodyLimit
from api.problems import MalformedBody
from tagmill.errors import TooLarge

GZIP, ZSTD = "gzip", "zstd"
# Below it, packing saves no packet.
MIN_BYTES = 1024
ZSTD_LEVEL, GZIP_LEVEL = 3, 5
# So much is unpacked at a time, whatever a few bytes of gzip stand for.
PIECE = 64 * 1024
PACKED_TYPES = (
    "application/json",
    "application/x-ndjson",
    "application/xml",
    "text/",
    "application/vnd.oai.openapi",
)


def unpacked(body: bytes, coding: str | None, limit: BodyLimit) -> bytes:
    """The body as it is meant. Raises TooLarge, MalformedBody."""
    if (coding or "").strip().lower() != GZIP:
        return body
    found, size = BytesIO(), 0
    for piece in unpack([body]):
        size += len(piece)
        if size > limit.size:
            raise TooLarge(f"unpacked, the body is larger than {limit}", limit=limit.size)
        found.write(piece)
    return found.getvalue()


def unpack(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """What the chunks of gzip hold, PIECE bytes at most at a time. Raises MalformedBody."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            left = chunk
            while left and not unpacker.eof:
                if piece := unpacker.decompress(left, PIECE):
                    yield piece
                left = unpacker.unconsumed_tail
            if unpacker.eof and (left or unpacker.unused_data):
                raise MalformedBody("the body is not gzip: something follows it")
    except zlib.error as error:
        raise MalformedBody(f"the body is not gzip: {error}") from None
    if not unpacker.eof:
        raise MalformedBody("the body is not gzip: it is cut short")


def coding_of(accepted: str) -> str | None:
    """The best of ours that Accept-Encoding takes."""
    taken = set()
    for item in accepted.lower().split(","):
        coding, _, weight = item.partition(";")
        if weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            taken.add(coding.strip())
    return next((coding for coding in (ZSTD, GZIP) if coding in taken), None)


def pack(body: bytes, coding: str) -> bytes:
    if coding == ZSTD:
        return zstandard.ZstdCompressor(ZSTD_LEVEL).compress(body)
    return gzip.compress(body, GZIP_LEVEL, mtime=0)


class Packer:
    """Packs what comes piece by piece, each so that it can be read when it has arrived. `coding`:
    ZSTD, GZIP, or empty for what is sent as it is."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._packer: Any = None
        if coding == ZSTD:
            self._packer = zstandard.ZstdCompressor(ZSTD_LEVEL).compressobj()
            self._ends = (zstandard.COMPRESSOBJ_FLUSH_BLOCK, zstandard.COMPRESSOBJ_FLUSH_FINISH)
        elif coding == GZIP:
            self._packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
            self._ends = (zlib.Z_SYNC_FLUSH, zlib.Z_FINISH)

    def add(self, data: bytes, *, is_last: bool) -> bytes:
        if self._packer is None:
            return data
        return bytes(self._packer.compress(data) + self._packer.flush(self._ends[is_last]))


def packed(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: answers above MIN_BYTES are packed. Those that nobody may store are not: they may
    hold a secret, which the size of a packed answer could tell about."""

    def middleware(request: HttpRequest) -> HttpResponse:
        answer = get_response(request)
        kind = answer.get("Content-Type", "")
        if (
            answer.streaming
            or len(answer.content) < MIN_BYTES
            or answer.has_header("Content-Encoding")
            or "no-store" in answer.get("Cache-Control", "")
            or not (kind.startswith(PACKED_TYPES) or "json" in kind)
        ):
            return answer
        patch_vary_headers(answer, ["Accept-Encoding"])
        if coding := coding_of(request.headers.get("Accept-Encoding", "")):
            answer.content = pack(answer.content, coding)
            answer["Content-Encoding"] = coding
            answer["Content-Length"] = str(len(answer.content))
        return answer

    return middleware
