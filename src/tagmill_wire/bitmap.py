"""Bitmaps of slots: slot n is bit n % 8 (least significant first) of byte n // 8.

In arithmetic a bitmap is a Python int (bit n = slot n); at rest and on the wire it is
`capacity / 8` bytes, base64 in JSON. `get_bit(bytea, n)` of PostgreSQL reads the same bit.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator


def from_slots(slots: Iterable[int]) -> int:
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return bits


def slots(bits: int) -> Iterator[int]:
    """The slots set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def to_bytes(bits: int, capacity: int) -> bytes:
    """`capacity / 8` bytes. Raises OverflowError when a slot is beyond the capacity."""
    return bits.to_bytes(capacity // 8, "little")


def from_bytes(data: bytes | memoryview) -> int:
    return int.from_bytes(data, "little")


def encode(bits: int, capacity: int) -> str:
    return base64.b64encode(to_bytes(bits, capacity)).decode("ascii")


def encode_short(bits: int) -> str:
    """Without the bytes after the last slot."""
    size = (bits.bit_length() + 7) // 8
    return base64.b64encode(bits.to_bytes(size, "little")).decode("ascii")


def decode(text: str, capacity: int) -> int:
    """Raises ValueError when it is not base64 of exactly `capacity / 8` bytes."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    if len(data) != capacity // 8:
        raise ValueError(f"{len(data)} bytes, not {capacity // 8}")
    return from_bytes(data)
