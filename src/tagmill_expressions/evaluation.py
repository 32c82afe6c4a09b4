"""What a definition says about a document, by lxml (libxml2): the reference.

The context node is the document's root element, as lxml has it also for a whole tree: `node` looks
below the root, `/node` at the root itself.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

from tagmill_expressions import definition
from tagmill_expressions.errors import EvaluationError

# Compiled expressions of some 10 kB: more than a fleet has, and no more than 40 MB.
_CACHE = 4096


@dataclass(frozen=True)
class Compiled:
    """Threads that share one wait for each other."""

    checked: definition.Checked
    _xpath: etree.XPath

    def matches(self, tree: etree._ElementTree | etree._Element) -> bool:
        """`boolean(expression)` on the document. Raises EvaluationError."""
        try:
            return bool(self._xpath(tree))
        except etree.XPathError as error:
            message = f"libxml2 cannot evaluate {self.checked.text}: {error}"
            raise EvaluationError(message) from None


def compile(text: str, namespaces: Mapping[str, str] = {}) -> Compiled:
    """Raises DefinitionError."""
    return _compile(text, tuple(sorted(namespaces.items())))


@functools.lru_cache(_CACHE)
def _compile(text: str, namespaces: tuple[tuple[str, str], ...]) -> Compiled:
    checked = definition.check(text, dict(namespaces))
    return Compiled(checked, definition.compile_libxml2(checked))
