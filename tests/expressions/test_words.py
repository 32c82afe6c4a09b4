"""Words to choose from while a definition is written."""

from __future__ import annotations

import pytest
from lxml import etree

from tagmill_expressions.vocabulary import MAX_VALUES, Vocabulary
from tagmill_expressions.words import Words, beginning

DOCUMENTS = (
    "<list><node id='a' class='system'><vendor>Dell</vendor><node id='cpu' class='processor'/>"
    "</node></list>",
    "<list><node id='b' class='system'><vendor>Dixie</vendor><node class='display'/></node></list>",
    "<list><node id='c' class='system'><vendor>Dell</vendor></node></list>",
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.of(map(etree.fromstring, DOCUMENTS))


def shown(found: Words) -> list[tuple[str, int | None]]:
    return [(word.name, word.documents) for word in found.words]


@pytest.mark.parametrize(
    ("under", "prefix", "expected"),
    [
        ("", "", [("list", 3), ("node", 3), ("vendor", 3)]),
        ("", "V", [("vendor", 3)]),
        ("list", "", [("node", 3)]),
        ("node", "", [("node", 3), ("vendor", 3), ("class", None), ("id", None)]),
        ("node/@class", "", [("system", 3), ("display", 1), ("processor", 1)]),
        ("*/@class", "p", [("processor", 1)]),
        ("vendor/text()", "d", [("Dell", 2), ("Dixie", 1)]),
        ("nothing", "", []),
        ("node/@nothing", "", []),
        ("{http://x/y}z/@a", "", []),
    ],
)
def test_words_of_a_place_are_listed_by_how_many_documents_have_them(
    vocabulary: Vocabulary, under: str, prefix: str, expected: list[tuple[str, int | None]]
) -> None:
    found = beginning(vocabulary, under, prefix, 10)
    assert shown(found) == expected
    assert not found.truncated


def test_no_more_than_asked_for_and_the_answer_says_so(vocabulary: Vocabulary) -> None:
    found = beginning(vocabulary, "node/@class", "", 2)
    assert (len(found.words), found.truncated, found.complete) == (2, True, True)


def test_values_that_were_not_kept_are_missed(vocabulary: Vocabulary) -> None:
    many = Vocabulary.of(etree.fromstring(f"<node id='{n}'/>") for n in range(MAX_VALUES + 1))
    assert not beginning(many, "node/@id", "", 10).complete
    assert not beginning(vocabulary, "list/text()", "", 10).complete
