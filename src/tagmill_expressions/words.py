"""The words of a vocabulary to choose from, while somebody writes a definition."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tagmill_expressions.vocabulary import Element, Values, Vocabulary

Kind = Literal["element", "attribute", "value"]
ANY = "*"
TEXT = "text()"


class Word(NamedTuple):
    """`documents`: at least so many have it; None for an attribute, whose values are counted."""

    kind: Kind
    name: str
    documents: int | None


@dataclass(frozen=True)
class Words:
    """The most frequent first. `truncated`: there are more that begin so. `complete`: no word is
    missing; false for the values of what has too many, long ones, or elements inside."""

    words: list[Word]
    truncated: bool
    complete: bool


def beginning(vocabulary: Vocabulary, under: str, prefix: str, limit: int) -> Words:
    """Up to `limit` words that begin with `prefix`, whatever their case.

    `under` is nothing for all elements; `node` for the children and attributes of elements of
    that name (`*`: any); `node/@class` for the values of an attribute, `vendor/text()` for texts.
    """
    name, _, rest = under.rpartition("/")
    if rest != TEXT and not rest.startswith("@"):
        name, rest = under, ""
    elements = [
        element for state, element in vocabulary.elements.items() if name in (state.name, ANY)
    ]
    is_complete = not vocabulary.open
    found: Iterable[Word]
    if rest:
        values = list(_values(elements, rest))
        is_complete = is_complete and all(item.listed for item in values)
        found = _merged("value", (item.kept or {} for item in values))
    elif under:
        found = _parts(vocabulary, elements)
    else:
        found = _elements(vocabulary, {state.name for state in vocabulary.elements})
    wanted = prefix.casefold()
    fitting = [word for word in found if word.name.casefold().startswith(wanted)]
    best = heapq.nsmallest(limit, fitting, key=_order)
    return Words(best, len(fitting) > limit, is_complete)


def _order(word: Word) -> tuple[int, str]:
    return -(word.documents or 0), word.name


def _values(elements: Iterable[Element], rest: str) -> Iterator[Values]:
    for element in elements:
        if rest == TEXT:
            yield element.text
        elif rest[1:] in element.attributes:
            yield element.attributes[rest[1:]]


def _parts(vocabulary: Vocabulary, elements: Iterable[Element]) -> Iterator[Word]:
    elements = list(elements)
    attributes = {name for element in elements for name in element.attributes}
    yield from (Word("attribute", name, None) for name in attributes)
    yield from _elements(vocabulary, {child.name for item in elements for child in item.children})


def _elements(vocabulary: Vocabulary, names: set[str]) -> Iterator[Word]:
    counted = ({state.name: item.documents} for state, item in vocabulary.elements.items())
    return (word for word in _merged("element", counted) if word.name in names)


def _merged(kind: Kind, counts: Iterable[dict[str, int]]) -> Iterator[Word]:
    """A document may have the same word in several places: the largest count is sure."""
    most: dict[str, int] = {}
    for counted in counts:
        for name, documents in counted.items():
            most[name] = max(documents, most.get(name, 0))
    return (Word(kind, name, documents) for name, documents in most.items())
