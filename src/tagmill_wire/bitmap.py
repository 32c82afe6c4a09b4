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


# The bits that each byte has.
_BITS = tuple(tuple(n for n in range(8) if byte >> n & 1) for byte in range(256))
# To take a bit off a long number copies it: for a few of them less work than to read all bytes.
_FEW = 8


def slots(bits: int) -> Iterator[int]:
    """The slots set, ascending."""
    if bits.bit_count() > _FEW:
        data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        for place, byte in enumerate(data):
            if byte:
                first = 8 * place
                for bit in _BITS[byte]:
                    yield first + bit
        return
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
