"""What lint tells, and how it collects it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tagmill_expressions.syntax import Part

CODES: Final = {
    "and_before_or": "and binds tighter than or, and no parentheses say that it is meant",
    "attribute_is_element": "an attribute that is an element in these documents",
    "bare_name_for_string": "a name without quotes, compared as text",
    "chained_comparison": "a comparison of a comparison: a < b < c, or a = b > c",
    "constant": "a condition that is the same for every document",
    "element_is_attribute": "an element that is an attribute in these documents",
    "element_named_operator": "an element called not, and, or, div or mod",
    "matches_every_node": "a definition that every document of the fleet meets today",
    "number_compared_as_text": "a number compared with text that is none, or written otherwise",
    "number_of_bytes": "a small number compared with a size, which is in bytes",
    "number_valued": "a number for a definition: true for everything but 0 and NaN",
    "position_of_siblings": "a position after //, which counts among siblings",
    "root_dependent": "a path that begins at one of the roots that the fleet's documents have",
    "undeclared_prefix": "a prefix that is neither declared nor a probe's name",
    "unknown_attribute": "an attribute that no document has there",
    "unknown_name": "an element that no document has there",
    "unknown_value": "a compared text that no document has there",
}


@dataclass(frozen=True)
class Warning:
    """`column` counts from 1, in characters; `end_column` is that of the last character."""

    code: str
    message: str
    """A sentence without a full stop."""
    column: int
    end_column: int
    rewrite: str | None = None
    """The whole definition as its author most likely meant it, where that is sure."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "column": self.column,
            "end_column": self.end_column,
            "rewrite": self.rewrite,
        }


MAX_WARNINGS = 100
"""Per definition. Who gets more reads none."""

MAX_REWRITES = 200
"""Made per definition: each is as long as the definition."""

MAX_SEARCHES = 20
"""How often a definition has names or values that are spelt alike looked up."""

MAX_SEARCHED = 200_000
"""Characters that these compare a word with, in all: 0.3 s when all are much alike."""


class Findings:
    def __init__(self, text: str) -> None:
        self.text = text
        self.warnings: list[Warning] = []
        self._rewrites = MAX_REWRITES
        self._searches = MAX_SEARCHES
        self._searched = 0

    def add(
        self,
        code: str,
        message: str,
        at: Part | tuple[int, int],
        *,
        replace: tuple[int, int] | None = None,
        by: str | None = None,
    ) -> None:
        """`by` takes the place of the span `replace`, by default the span `at`."""
        span = (at.start, at.end) if isinstance(at, Part) else at
        rewrite = None
        if by is not None and self._rewrites:
            self._rewrites -= 1
            start, end = replace or span
            rewrite = self.text[:start] + by + self.text[end:]
        self.warnings.append(Warning(code, message, span[0] + 1, span[1], rewrite))

    def in_order(self) -> list[Warning]:
        """The first MAX_WARNINGS."""
        ordered = sorted(
            set(self.warnings), key=lambda w: (w.column, w.end_column, w.code, w.message)
        )
        return ordered[:MAX_WARNINGS]

    def near(self, word: str, known: Iterable[str], most: int = 1) -> list[str]:
        """The words spelt nearest; none after MAX_SEARCHES, or after MAX_SEARCHED characters."""
        if not self._searches:
            return []
        self._searches -= 1
        compared = []
        for name in sorted(known, key=lambda name: (abs(len(name) - len(word)), name)):
            self._searched += len(name)
            if self._searched > MAX_SEARCHED:
                break
            compared.append(name)
        return difflib.get_close_matches(word, sorted(compared), n=most)

    def source(self, part: Part) -> str:
        return self.text[part.start : part.end]


def caret(text: str, column: int, message: str) -> str:
    """The line of the column, a caret below it, and the message; the column counts from 1.

    Tabs and wide characters stay as they are: the caret's line repeats the tabs.
    """
    at = min(max(column, 1) - 1, len(text))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start:] if end < 0 else text[start:end]
    indent = "".join("\t" if character == "\t" else " " for character in text[start:at])
    return f"{line}\n{indent}^ {message}"


def listed(names: list[str], most: int = 5) -> str:
    """ "a, b, c and 4 more"."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
