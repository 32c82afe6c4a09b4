"""Our parser against libxml2's, on expressions and on what nearly is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree

from tagmill_expressions import definition
from tagmill_expressions.errors import DefinitionError
from tests.expressions import grammar

REAL = Path(__file__).parents[1].joinpath("data/real-xpaths.txt").read_text().splitlines()

PYTHON_TYPES = {"node-set": list, "boolean": bool, "number": float, "string": str}

# Errors that libxml2 has only where it evaluates the wrong part, which it need not.
EVALUATED = re.compile(
    r"unknown function|\(\) takes|and this is a |in a predicate only|variables are not supported"
)
# What libxml2 takes beyond the grammar.
BEYOND = re.compile(r"/\s+/|///|[0-9.]\s*e|:\s|\s:[^:]|(?:and|or|div|mod)[^\s(]", re.IGNORECASE)

deterministic = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def libxml2_evaluates(text: str) -> bool:
    try:
        xpath = etree.XPath(text, namespaces=grammar.NAMESPACES, regexp=False)
        for document in grammar.DOCUMENTS:
            xpath(document)
    except etree.XPathError:
        return False
    return True


def results(checked: definition.Checked) -> list[object]:
    xpath = etree.XPath(
        checked.libxml2_text, namespaces=checked.libxml2_namespaces or None, regexp=False
    )
    return [xpath(document) for document in grammar.DOCUMENTS]


@pytest.mark.parametrize("static_type", grammar.EXPRESSIONS)
def test_what_the_grammar_makes_is_accepted_with_the_type_that_libxml2_returns(
    static_type: str,
) -> None:
    @settings(deterministic, max_examples=100)
    @given(grammar.EXPRESSIONS[static_type])
    def agrees(text: str) -> None:
        try:
            checked = definition.check(text, grammar.NAMESPACES)
        except DefinitionError as error:
            # The only rule that the strategies do not keep to: how deep an expression may nest.
            assert "nested deeper" in error.message, (text, error.message)
            return
        assert checked.type == static_type
        for result in results(checked):
            assert isinstance(result, PYTHON_TYPES[static_type])

    agrees()


@settings(deterministic, max_examples=1000)
@given(
    st.lists(st.sampled_from(grammar.TOKENS), min_size=1, max_size=9), st.sampled_from(["", " "])
)
@example(["a", "[", "1", "]", "[", "2", "]"], "")
@example(["*", "*", "*"], " ")
def test_pieces_in_any_order_are_accepted_when_libxml2_evaluates_them(
    pieces: list[str], space: str
) -> None:
    text = space.join(pieces)
    try:
        checked = definition.check(text, grammar.NAMESPACES)
    except DefinitionError as error:
        assert error.column is not None
        assert 1 <= error.column <= len(text) + 1
        if not EVALUATED.search(error.message) and not BEYOND.search(text):
            assert not libxml2_evaluates(text), error.message
        return
    for result in results(checked):
        assert isinstance(result, PYTHON_TYPES[checked.type])


@st.composite
def mutations(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(REAL))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 4)))
        inserted = draw(
            st.sampled_from(["", "", *"()[]/@*.,:|=<>!+-$&'\" \n\0\x1bé\ud800\U0001f600"])
            | st.sampled_from([" and ", " or ", "not(", "text()", "::", "//", "lshw:", "1e5"])
            | st.text(max_size=2)
        )
        text = text[:at] + inserted + text[end:]
    return text


@settings(deterministic, max_examples=800)
@given(mutations())
def test_a_broken_definition_is_refused_with_a_column_or_libxml2_evaluates_it(text: str) -> None:
    try:
        checked = definition.check(text)
    except DefinitionError as error:
        assert error.column is not None
        assert 1 <= error.column <= len(text) + 1
        # It knows the letters of an older edition of XML.
        assert "libxml2" not in error.message or not text.isascii()
        return
    for result in results(checked):
        assert isinstance(result, PYTHON_TYPES[checked.type])
