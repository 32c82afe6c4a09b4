"""Bitmaps over an expression set are exactly as long as it, and name nothing beyond it."""

from __future__ import annotations

import base64

import pytest

from tagmill_wire.sets import Order

NINE = Order(tuple(range(10, 100, 10)))


@pytest.mark.parametrize("chosen", [[], [10], [90], [10, 50, 90], list(NINE.ids)])
def test_what_is_packed_is_unpacked(chosen: list[int]) -> None:
    bits = NINE.bits(chosen)
    assert NINE.expressions(NINE.decode(NINE.encode(bits))) == chosen
    assert len(base64.b64decode(NINE.encode(bits))) == 2


def test_without_a_bitmap_it_is_everything() -> None:
    assert NINE.expressions(NINE.decode(None)) == list(NINE.ids)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", b"\0\2", b"\xff\xff"])
def test_a_wrong_length_and_a_bit_beyond_the_set_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|beyond the 9 expressions"):
        NINE.decode(base64.b64encode(data).decode())


def test_what_is_no_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="not base64"):
        NINE.decode("?")
