"""Expressions drawn from the grammar of XPath 1.0, by type, and documents for them."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st
from lxml import etree

from tagmill_expressions.syntax import Axis

NAMESPACES = {"p": "urn:p"}

DOCUMENTS = [
    etree.ElementTree(etree.fromstring(text))
    for text in (
        "<list/>",
        '<a id="1" xml:lang="en"><b>1</b><b c="x">2<!--c--><a/></b><?pi d?>text</a>',
        '<node xmlns:p="urn:p" p:id="2"><p:a><b/>x</p:a><node><a b="1">3</a><b/></node></node>',
    )
]

_AXES = get_args(Axis)
_NAMES = ["a", "b", "id", "node", "div", "and", "p:a", "p:*", "*", "x-y", "text", "count", "é"]
_KINDS = ["node()", "text ()", "comment( )", "processing-instruction('pi')"]
_SPACE = st.sampled_from(["", "", " ", "\n\t"])
_COMPARISONS = ["=", "!=", "<", "<=", ">", ">="]


def _leaf(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


@st.composite
def _call(
    draw: st.DrawFn, name: str, *arguments: st.SearchStrategy[str], least: int | None = None
) -> str:
    count = draw(st.integers(len(arguments) if least is None else least, len(arguments)))
    given = [draw(argument) for argument in arguments[:count]]
    space = draw(_SPACE)
    return f"{name}{space}({space}{f'{space},{space}'.join(given)}{space})"


@st.composite
def _joined(
    draw: st.DrawFn, left: st.SearchStrategy[str], signs: list[str], right: st.SearchStrategy[str]
) -> str:
    return f"{draw(left)} {draw(st.sampled_from(signs))} {draw(right)}"


@st.composite
def _step(draw: st.DrawFn, value: st.SearchStrategy[str]) -> str:
    form = draw(st.integers(0, 9))
    if form == 0:
        return draw(_leaf(".", ".."))
    test = draw(st.sampled_from(_NAMES if form < 8 else _KINDS))
    before = ""
    if form == 1:
        before = draw(st.sampled_from(_AXES)) + draw(_leaf("::", " ::", ":: "))
    elif form == 2:
        before = draw(_leaf("@", "@ "))
    predicates = draw(st.lists(value, max_size=2)) if form < 4 else []
    return before + test + "".join(f"[{predicate}]" for predicate in predicates)


@st.composite
def _path(draw: st.DrawFn, value: st.SearchStrategy[str]) -> str:
    steps = draw(st.lists(_step(value), min_size=1, max_size=3))
    path = draw(_leaf("", "", "/", "//", "//")) + steps[0]
    for step in steps[1:]:
        path += draw(_leaf("/", "/", "//", " / ")) + step
    return path


@st.composite
def _filtered(
    draw: st.DrawFn, operand: st.SearchStrategy[str], value: st.SearchStrategy[str]
) -> str:
    tail = draw(_leaf("", "/a", "//b", f"[{draw(value)}]", "[position() = last()]/.."))
    return f"({draw(operand)}){tail}"


_POSITION = _leaf("[1]", "[position() < 3]", "[last()]")

node_sets = st.deferred(
    lambda: (
        _path(any_type)
        | _path(_leaf("1", "last()", "position() = 2", "@id"))
        | _joined(node_sets, ["|"], node_sets)
        | _filtered(node_sets, any_type)
        | _call("id", any_type)
        | _leaf("/", "//*", "a[1]/b")
    )
)
numbers = st.deferred(
    lambda: (
        _leaf("0", "1", "2.5", ".5", "10.")
        | _joined(_atom(numbers), ["+", "-", "*", "div", "mod"], _atom(any_type))
        | _atom(any_type).map(lambda text: f"- {text}")
        | _call("count", node_sets)
        | _call("sum", node_sets)
        | _call("string-length", any_type, least=0)
        | _call("number", any_type, least=0)
        | st.sampled_from(["floor", "ceiling", "round"]).flatmap(lambda f: _call(f, any_type))
    )
)
strings = st.deferred(
    lambda: (
        _leaf("''", '"a"', "'1'", '"it\'s"')
        | _call("string", any_type, least=0)
        | _call("concat", any_type, any_type, any_type, least=2)
        | _call("substring", any_type, any_type, any_type, least=2)
        | _call("substring-before", any_type, any_type)
        | _call("substring-after", any_type, any_type)
        | _call("translate", any_type, any_type, any_type)
        | _call("normalize-space", any_type, least=0)
        | st.sampled_from(["name", "local-name", "namespace-uri"]).flatmap(
            lambda f: _call(f, node_sets, least=0)
        )
    )
)
booleans = st.deferred(
    lambda: (
        _leaf("true()", "false( )")
        | _joined(_atom(any_type), _COMPARISONS, _atom(any_type))
        | _joined(_atom(any_type), ["and", "or"], _atom(any_type))
        | _call("not", any_type)
        | _call("boolean", any_type)
        | _call("contains", any_type, any_type)
        | _call("starts-with", any_type, any_type)
        | _call("lang", any_type)
    )
)
any_type = st.deferred(lambda: node_sets | numbers | strings | booleans)


def _atom(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """In parentheses, so that the operators inside do not take the neighbours' operands."""
    return strategy.map(lambda text: f"({text})")


EXPRESSIONS = {
    "node-set": _atom(node_sets),
    "number": _atom(numbers),
    "string": _atom(strings),
    "boolean": _atom(booleans),
}
"""Static type to expressions of it."""

# Pieces that make sense in some order, seldom in a random one.
TOKENS = [
    *["a", "b", "p:a", "*", "@", ".", "..", "/", "//", "|", "+", "-", "=", "<", "!=", "and", "or"],
    *["div", "mod", "(", ")", "[", "]", ",", "'x'", '"', "1", "2.5", "text()", "node()", "$v"],
    *[
        "count",
        "count(",
        "not(",
        "true()",
        "contains(",
        "position()",
        "last()",
        "child::",
        "self::",
    ],
    *["attribute::", "foo(", "foo::", "a/b", "a[1]", "@id", "::", ":", "id('x')", "&", "!"],
]
