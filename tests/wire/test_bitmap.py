"""The slots of a bitmap, few or many of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tagmill_wire import bitmap


@given(st.sets(st.integers(0, 2000), max_size=40))
def test_the_slots_are_those_that_were_set_in_their_order(slots: set[int]) -> None:
    bits = bitmap.from_slots(slots)
    assert [*bitmap.slots(bits)] == sorted(slots)
    assert bitmap.decode(bitmap.encode(bits, 2048), 2048) == bits
    assert len(bitmap.encode_short(bits)) <= len(bitmap.encode(bits, 2048))


def test_all_slots_and_none() -> None:
    assert [*bitmap.slots((1 << 1024) - 1)] == [*range(1024)]
    assert [*bitmap.slots(0)] == [] and bitmap.encode_short(0) == ""
