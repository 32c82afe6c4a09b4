"""What an explanation consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from tagmill_expressions.syntax import Type

Kind = Literal["and", "or", "not", "comparison", "union", "arithmetic", "function", "path", "value"]


@dataclass(frozen=True)
class Hit:
    """A node that a path found."""

    path: str
    """Such as `/list/node[1]/node[2]/@id`: it finds the same node when it is evaluated, of
    text also what lies beside it. Of one with more than MAX_PATH characters, the end."""
    line: int | None
    """The line in the text of the element's probe, from 1."""
    text: str
    """An element's own text, or another node's value; at most MAX_TEXT characters."""

    about: str = ""
    """What people know an element by, as `id=cpu:0 class=processor product=Xeon`; at most MAX_TEXT
    characters."""

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "line": self.line, "text": self.text, "about": self.about}


@dataclass(frozen=True)
class Missing:
    """Why a path found nothing."""

    sentence: str
    """Without a full stop."""
    longest: str
    """The beginning of the path that still found something, as text; empty if nothing did."""
    total: int
    """How many it found."""
    failed: str
    """The step or the condition after it, which found nothing."""
    column: int
    """Where `failed` begins in the definition."""
    instead: tuple[str, ...]
    """Names or values that are there, at most MAX_INSTEAD, the most alike first."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "longest": self.longest,
            "total": self.total,
            "failed": self.failed,
            "column": self.column,
            "instead": list(self.instead),
        }


@dataclass(frozen=True)
class Explanation:
    """A part of the definition, evaluated at the document's root element.

    `value` is that of a boolean, number or string, of which it is at most MAX_TEXT characters, and
    `length` is how many the whole has; both are None for a node-set, which has a `total`, at
    most MAX_HITS `hits` in document order, and `missing` if it is empty. A true comparison of a
    node-set with a literal has in `total` and `hits` the nodes that make it true. `verdict` is
    `boolean()` of the part. `truncated`: there was no time for its operands, or what it found.
    """

    kind: Kind
    text: str
    """The part as it is written in the definition."""
    column: int
    end_column: int
    """The column of the last character."""
    type: Type
    verdict: bool
    value: bool | float | str | None = None
    length: int | None = None
    total: int | None = None
    hits: tuple[Hit, ...] = ()
    missing: Missing | None = None
    operands: tuple[Explanation, ...] = ()
    truncated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The explanation for JSON: NaN and infinities are the strings that XPath writes."""
        return {
            "kind": self.kind,
            "text": self.text,
            "column": self.column,
            "end_column": self.end_column,
            "type": self.type,
            "verdict": self.verdict,
            "value": _json(self.value),
            "length": self.length,
            "total": self.total,
            "hits": [hit.to_dict() for hit in self.hits],
            "missing": None if self.missing is None else self.missing.to_dict(),
            "operands": [operand.to_dict() for operand in self.operands],
            "truncated": self.truncated,
        }


def _json(value: bool | float | str | None) -> bool | float | str | None:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    return value
