"""Lint of definitions, by the vocabulary of the fleet."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from tagmill.fleet import vocabularies
from tagmill.matches.expressions import check, parsed
from tagmill.matches.models import Expression
from tagmill_expressions import lint as linter
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.vocabulary import Vocabulary

# Characters of definitions and warnings that are kept while the vocabulary stays: enough for all
# that a fleet has. A single definition may have warnings of 2 MB.
MAX_KEPT = 16 * 1024 * 1024


class Lint(NamedTuple):
    """`documents`: how many the fleet's vocabulary was learnt from; None when only the form of the
    definition could be judged, as not every partition's is known. `behind`: partitions that have
    changes which nobody has learnt yet."""

    warnings: tuple[linter.Warning, ...]
    documents: int | None
    behind: int


class Kept:
    """Warnings by definition. A new vocabulary begins a new one."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self.vocabulary = vocabulary
        self.warnings: dict[
            tuple[str, tuple[tuple[str, str], ...]], tuple[linter.Warning, ...]
        ] = {}
        self.size = 0

    def keep(
        self, key: tuple[str, tuple[tuple[str, str], ...]], found: tuple[linter.Warning, ...]
    ) -> None:
        size = sum(len(text) for pair in key[1] for text in pair) + len(key[0])
        size += sum(len(item.message) + len(item.rewrite or "") for item in found)
        if self.size + size <= MAX_KEPT:
            self.size += size
            self.warnings[key] = found


_lock = threading.Lock()
_kept = Kept(None)


def lint(text: str, namespaces: Mapping[str, str]) -> Lint:
    """Raises InvalidDefinition, with `column` and `caret`, and TooLarge."""
    check(text, namespaces)
    return _linted(text, namespaces)


def of_expression(expression: Expression) -> tuple[linter.Warning, ...]:
    """The warnings about a stored definition; none where today's limits would refuse it."""
    try:
        return _linted(expression.text, expression.namespaces).warnings
    except DefinitionError:
        return ()


def _linted(text: str, namespaces: Mapping[str, str]) -> Lint:
    known = vocabularies.fleet()
    kept = _current(known.vocabulary)
    key = text, tuple(sorted(namespaces.items()))
    found = kept.warnings.get(key)
    if found is None:
        found = tuple(linter.lint(parsed(text, namespaces), known.vocabulary))
        kept.keep(key, found)
    documents = None if known.vocabulary is None else known.vocabulary.documents
    return Lint(found, documents, known.behind)


def _current(vocabulary: Vocabulary | None) -> Kept:
    global _kept  # noqa: PLW0603 - replaced as a whole, so that readers need no lock
    with _lock:
        if _kept.vocabulary is not vocabulary:
            _kept = Kept(vocabulary)
        return _kept
