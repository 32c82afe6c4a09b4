"""Bitmaps over an expression set: expression n of its order is bit n % 8 (least significant first)
of byte n // 8. They are as long as the set needs, base64 in JSON."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tagmill_wire import bitmap


@dataclass(frozen=True)
class Order:
    """The ids of a set's expressions, ascending."""

    ids: Sequence[int]

    @functools.cached_property
    def positions(self) -> dict[int, int]:
        return {key: position for position, key in enumerate(self.ids)}

    @functools.cached_property
    def everything(self) -> int:
        return (1 << len(self.ids)) - 1

    def bits(self, expressions: Iterable[int]) -> int:
        """Raises KeyError for one that is not of the set."""
        return bitmap.from_slots(self.positions[key] for key in expressions)

    def split(self, expressions: Sequence[int]) -> tuple[int, list[int]]:
        """Expressions of the set, as bits, and others. They are given ascending."""
        if len(expressions) == len(self.ids) and list(expressions) == list(self.ids):
            return self.everything, []
        ours = [key for key in expressions if key in self.positions]
        return self.bits(ours), [key for key in expressions if key not in self.positions]

    def expressions(self, bits: int) -> list[int]:
        if bits == self.everything:
            return list(self.ids)
        return [self.ids[position] for position in bitmap.slots(bits)]

    def encode(self, bits: int) -> str:
        return bitmap.encode(bits, self._room)

    def decode(self, text: str | None) -> int:
        """None: everything. Raises ValueError for a wrong length, and for bits beyond the set."""
        if text is None:
            return self.everything
        bits = bitmap.decode(text, self._room)
        if bits > self.everything:
            raise ValueError(f"a bit beyond the {len(self.ids)} expressions of the set")
        return bits

    @property
    def _room(self) -> int:
        """In whole bytes."""
        return -(-len(self.ids) // 8) * 8
