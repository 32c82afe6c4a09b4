"""What a worker's own process reads of a page of a partition: response headers, so that the child
alone unpacks the body, which says the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagmill_wire.frames import PackedBatch
from tagmill_wire.messages import Batch, WireError

REV = "Tagmill-Rev"
NEXT = "Tagmill-Next"
EMPTY = "Tagmill-Empty"

MAX_DIGITS = 18  # bigint
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class PageHead:
    """`next` is the `after` of the following page. `is_empty`: no nodes at all."""

    rev: int
    next: int | None
    is_empty: bool

    @classmethod
    def of(cls, batch: Batch | PackedBatch) -> PageHead:
        return cls(batch.rev, batch.next, not batch.nodes)

    def headers(self) -> dict[str, str]:
        """The last page has no `Tagmill-Next`."""
        found = {REV: str(self.rev), EMPTY: str(self.is_empty).lower()}
        return found if self.next is None else {**found, NEXT: str(self.next)}

    @classmethod
    def read(cls, header: Callable[[str], str | None]) -> PageHead:
        """`header` gives the value by name. Raises WireError."""
        is_empty = _TRUTH.get(header(EMPTY) or "")
        if is_empty is None:
            raise WireError(EMPTY, "must be true or false")
        follower = header(NEXT)
        return cls(
            _number(REV, header(REV)),
            None if follower is None else _number(NEXT, follower),
            is_empty,
        )


def _number(name: str, text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
        raise WireError(name, "must be a whole number")
    return int(text)
