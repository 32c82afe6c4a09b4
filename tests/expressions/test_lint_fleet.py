"""What every definition that people wrote gets, against the vocabulary of a fleet."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from fixtures.generate import generate
from tagmill_expressions.definition import check
from tagmill_expressions.documents import compose
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.lint import Warning, lint
from tagmill_expressions.vocabulary import Vocabulary

REAL = Path(__file__).parents[1].joinpath("data/real-xpaths.txt").read_text().splitlines()


@functools.cache
def fleet() -> Vocabulary:
    """The vocabulary of 600 documents with either root; a quarter has lldp too."""
    found = Vocabulary.of(compose(node.probes) for node in generate(300, seed=1, profile="lean"))
    found.merge(Vocabulary.of(compose(node.probes) for node in generate(300, 1, "server")))
    return found


def warnings(text: str, vocabulary: Vocabulary | None = None) -> list[Warning]:
    """The warnings by the fleet's vocabulary; checks that every rewrite is a definition."""
    found = lint(check(text), fleet() if vocabulary is None else vocabulary)
    for warning in found:
        assert 1 <= warning.column <= warning.end_column <= len(text)
        if warning.rewrite is not None:
            check(warning.rewrite)
    return found


# By the line's number, from 1: the codes with the columns that they point at. What is not here
# works, and gets nothing.
EXPECTED = {
    # A quote in place of a step.
    2: ["error 23"],
    # On every node that has a document.
    8: ["constant 1"],
    # `setting/id="cores" >= 40` asks whether false equals something; then an `or` among the
    # `and`s, before an `@id` of the root.
    15: [
        "chained_comparison 49",
        "element_is_attribute 89",
        "and_before_or 165",
        "root_dependent 168",
    ],
    27: ["element_named_operator 124"],
    # The bracket of column 94 is never closed.
    31: ["error 117"],
    # A QEMU machine with an Intel processor matches, by the second half.
    32: ["and_before_or 117"],
    # lshw calls no disk that.
    39: ["unknown_value 51"],
    # <width> is an element.
    40: ["attribute_is_element 22"],
    # The second child of its bus, not the second network card.
    41: ["position_of_siblings 8"],
    44: ["matches_every_node 1"],
    # An id for an element; nothing that lshw prints; nothing that lshw prints.
    45: ["unknown_name 8"],
    46: ["unknown_attribute 8"],
    47: ["unknown_name 12"],
    # An element called true.
    48: ["unknown_name 1"],
    49: ["error 1"],
    50: ["matches_every_node 1"],
    51: ["unknown_name 3"],
    52: ["undeclared_prefix 3"],
    # Numbers, for MAAS's own use: true of everything but 0.
    53: ["number_valued 1"],
    54: ["number_valued 1"],
    55: ["number_valued 1"],
    56: ["number_valued 1"],
    57: ["matches_every_node 1"],
    58: ["number_valued 1"],
}

# The rewrites of those that are sure.
REWRITES = {
    15: [
        '//node[@id="cpu"]/configuration/setting[@id="cores"]/@value >= 40 and ',
    ],
    27: ['and not(//node[@id="firmware"]/capabilities/capability/@id = "uefi")'],
    40: ["//node[@id='cpu' and width='64']//setting[@id='cores' and number(@value)>=32]"],
    41: ["(//node[@class='network'])[position()=2]"],
    48: ["true()"],
    53: ["count(//node[@id='core']/node[@class='processor']) > 0"],
    56: ["/size[@units='bytes']) div 1024 div 1024 > 0"],
    58: ['count(//capability[@id="wireless"]) > 0'],
}


@pytest.mark.parametrize("number", range(1, len(REAL) + 1))
def test_a_real_definition_gets_what_its_author_needs_and_nothing_else(number: int) -> None:
    text = REAL[number - 1]
    try:
        found = [f"{warning.code} {warning.column}" for warning in warnings(text)]
    except DefinitionError as error:
        found = [f"error {error.column}"]
    assert found == EXPECTED.get(number, [])


@pytest.mark.parametrize("number", REWRITES)
def test_a_real_definition_is_rewritten_as_its_author_meant_it(number: int) -> None:
    rewrites = [w.rewrite for w in warnings(REAL[number - 1]) if w.rewrite is not None]
    assert len(rewrites) == len(REWRITES[number])
    for rewrite, expected in zip(rewrites, REWRITES[number], strict=True):
        assert expected in rewrite


def test_a_rewrite_gets_no_warning_of_the_same_code() -> None:
    for number in REWRITES:
        for warning in warnings(REAL[number - 1]):
            if warning.rewrite is not None:
                again = {(w.code, w.column) for w in warnings(warning.rewrite)}
                assert (warning.code, warning.column) not in again


def test_without_a_vocabulary_a_real_definition_gets_a_part_of_that() -> None:
    for text in REAL:
        try:
            checked = check(text)
        except DefinitionError:
            continue
        told = {(warning.code, warning.column) for warning in lint(checked, fleet())}
        alone = {(warning.code, warning.column) for warning in lint(checked, None)}
        assert alone <= told
        assert not any(code.startswith(("unknown", "root", "matches")) for code, _ in alone)


@pytest.mark.parametrize(
    ("text", "says", "rewrite"),
    [
        (
            '//node[vendor="nvidia"]',
            "there is NVIDIA Corporation",
            '//node[vendor[contains(., "NVIDIA")]]',
        ),
        ('//vendor != "NVIDIA"', "there is NVIDIA Corporation", None),
        ('//node[@class="gpu"]', "there are bridge, bus, communication, disk, display,", None),
        ("//node[@id='memory']/size > 8", "size is in bytes or", None),
        ("16 <= //node[@id='memory']/size", "16 GiB are 17179869184", None),
    ],
)
def test_what_the_fleet_has_instead_is_told(text: str, says: str, rewrite: str | None) -> None:
    (warning,) = warnings(text)
    assert says in warning.message
    assert warning.rewrite == rewrite


@pytest.mark.parametrize("text", ["//width > 32", "//node[@id='memory']/size > 8589934592"])
def test_a_number_of_the_order_of_what_documents_have_is_no_mistake(text: str) -> None:
    assert warnings(text) == []
