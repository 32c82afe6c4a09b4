"""Evaluates parts of a definition on one document, as many as are allowed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lxml import etree

from tagmill_expressions.definition import Checked
from tagmill_expressions.errors import EvaluationError, ExpressionError
from tagmill_expressions.explain.printer import Printer
from tagmill_expressions.syntax import SyntaxTree

MAX_EVALUATIONS = 200
"""Per explanation. Those that people wrote take 5 to 60."""


class Exhausted(ExpressionError):
    """No evaluation is left, or no time."""


class PartEvaluator:
    """The context is the root element, as for the whole definition.

    `deadline` is a time of `clock`; an evaluation that runs is not stopped.
    """

    def __init__(
        self,
        checked: Checked,
        tree: etree._ElementTree | etree._Element,
        deadline: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.checked = checked
        self.tree = tree
        self.printer = Printer(checked)
        self._deadline = deadline
        self._clock = clock
        self._left = MAX_EVALUATIONS

    def evaluate(self, text: str) -> Any:
        """What lxml returns for the text. Raises EvaluationError, and Exhausted after the first."""
        first = self._left == MAX_EVALUATIONS
        late = self._deadline is not None and self._clock() > self._deadline
        if not self._left or (late and not first):
            raise Exhausted("the explanation has no evaluations left")
        self._left -= 1
        try:
            xpath = etree.XPath(
                text, namespaces=self.checked.libxml2_namespaces or None, regexp=False
            )
            return xpath(self.tree)
        except etree.XPathError as error:
            raise EvaluationError(f"libxml2 cannot evaluate {text}: {error}") from None

    def value(self, text: str) -> bool | float | str:
        """The value of an expression that is not a node-set."""
        found: bool | float | str = self.evaluate(text)
        return str(found) if isinstance(found, str) else found

    def count(self, text: str) -> int:
        return int(self.evaluate(f"count({text})"))

    def source(self, part: SyntaxTree) -> str:
        return self.checked.text[part.start : part.end]
