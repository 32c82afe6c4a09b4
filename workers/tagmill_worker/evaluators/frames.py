"""Messages between worker and child: a JSON header and a body of bytes, each with its length."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import orjson

LENGTHS = struct.Struct("<II")


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    head = orjson.dumps(header)
    return b"".join((LENGTHS.pack(len(head), len(body)), head, body))


def read(stream: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """Blocks. Raises EOFError when the other side has closed."""
    head, body = LENGTHS.unpack(_exactly(stream, LENGTHS.size))
    return orjson.loads(_exactly(stream, head)), _exactly(stream, body)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


class Buffer:
    """The same without blocking: bytes in as they come, whole messages out."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        self._bytes += data
        messages = []
        while len(self._bytes) >= LENGTHS.size:
            head, body = LENGTHS.unpack_from(self._bytes)
            start, end = LENGTHS.size + head, LENGTHS.size + head + body
            if len(self._bytes) < end:
                break
            header = orjson.loads(self._bytes[LENGTHS.size : start])
            messages.append((header, bytes(self._bytes[start:end])))
            del self._bytes[:end]
        return messages
