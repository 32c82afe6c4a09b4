"""Definitions: what is refused and at which column, what the tree holds, what libxml2 is given."""

# ruff: noqa: RUF001 - typographic quotes are what some of these are about

from __future__ import annotations

from pathlib import Path

import pytest

from tagmill_expressions import evaluation, syntax
from tagmill_expressions.definition import MAX_LENGTH, check
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.parser import MAX_NESTING, MAX_TOKENS
from tagmill_expressions.syntax import Part, children
from tests.expressions import grammar

REAL = Path(__file__).parents[1].joinpath("data/real-xpaths.txt").read_text().splitlines()

# The definitions that people wrote and no XPath processor takes, with the column of the mistake.
BROKEN = {
    """//node[@id="display"]/'clock units="Hz"' > 1000000000""": 23,
    """not(starts-with(//node[@class="system"]/vendor,"QEMU")) and """
    """//node[@class="processor"]/vendor[starts-with(.,"Intel")""": 117,
    "invalid::definition": 1,
}


def refusal(text: str, namespaces: dict[str, str] | None = None) -> tuple[str, int | None]:
    with pytest.raises(DefinitionError) as caught:
        check(text, namespaces or {})
    return caught.value.message, caught.value.column


# -- what people wrote -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [text for text in REAL if text not in BROKEN])
def test_a_real_definition_is_accepted(text: str) -> None:
    checked = check(text)
    assert checked.text == text
    assert checked.libxml2_text == text.replace("lshw:", "")


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_real_definition_is_refused_where_the_mistake_is(text: str) -> None:
    assert text in REAL
    assert refusal(text)[1] == BROKEN[text]


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "empty"),
        (" \n", 3, "empty"),
        ("//", 3, "a step"),
        ("//node/", 8, "a step"),
        ("////a", 3, "a step"),
        ("a/(b)", 3, "a step"),
        ("a/count(b)", 3, "a step"),
        ("a/self::count(b)", 9, "write count(path) around the path"),
        (".[1]", 2, "self::node()[...]"),
        ("..[1]", 3, "parent::node()[...]"),
        ("@@a", 2, "after @"),
        ("a[]", 3, "a path, a value or a function"),
        ("a = ", 5, "a path, a value or a function"),
        ("(a", 3, ") for the ( of column 1"),
        ("a[b[c]", 7, "] for the [ of column 2"),
        ("a)", 2, "an operator or the end"),
        ("a, b", 2, "an operator or the end"),
        ("a 'b'", 3, "an operator or the end"),
        ("a b", 3, "put an operator before it"),
        ("3 mod2", 3, "put an operator before it"),
        ("1e5", 2, "put an operator before it"),
        ("contains(a, 'b)", 13, "no closing '"),
        ("a == b", 4, "found ="),
        ("a ! b", 3, "!="),
        ("a && b", 3, "write and"),
        ("a; b", 2, "no meaning"),
        ("a : b", 3, "prefix:name"),
        ("a\N{NO-BREAK SPACE}= b", 2, "no meaning"),
        ("text('x')", 6, ") for the ( of column 5"),
        ("processing-instruction(a)", 24, "found a"),
        ("chlid::a", 1, "did you mean child?"),
        ("a/zzz::b", 3, "the axes are ancestor,"),
        ("$cpu > 1", 1, "variables are not supported"),
        ("//a[cuont(b) = 1]", 5, "did you mean count?"),
        ("regexp()", 1, "XPath 1.0 has boolean, ceiling"),
        ("re:test(a, 'b')", 1, "unknown function re:test()"),
        ("lshw:count(a)", 1, "unknown function lshw:count()"),
        ("a or count(b, c)", 6, "count() takes 1 argument, not 2"),
        ("true(1)", 1, "true() takes no arguments, not 1"),
        ("concat('a')", 1, "concat() takes 2 arguments or more, not 1"),
        ("substring('a')", 1, "substring() takes 2 to 3 arguments, not 1"),
        ("contains('a')", 1, "contains() takes 2 arguments, not 1"),
        ("count('x')", 7, "count() needs a node-set, and this is a string"),
        ("sum(//a = 1)", 5, "this is a boolean"),
        ("name(1 + 1)", 6, "this is a number"),
        ("//a | 1", 7, "| joins node-sets, and this is a number"),
        ("true() | //a", 1, "| joins node-sets, and this is a boolean"),
        ("string(a)/b", 1, "/ continues a path, and this is a string"),
        ("(a = 1)//b", 2, "// continues a path, and this is a boolean"),
        ("'a'[1]", 1, "a predicate filters a node-set, and this is a string"),
        ("position() = 1", 1, "in a predicate only"),
        ("a[1]/b = last()", 10, "in a predicate only"),
        ("a = '\x01'", 6, "not allowed in XML"),
        ("a\0", 2, "not allowed in XML"),
        ("a = '\ud800'", 6, "not allowed in XML"),
        ("@xmlns:a", 2, "xmlns is no prefix"),
        ("a/\N{CJK COMPATIBILITY IDEOGRAPH-F900}", 3, "plainer letters"),
    ],
)
def test_a_mistake_is_refused_at_its_column(text: str, column: int, says: str) -> None:
    message, where = refusal(text)
    assert says in message
    assert where == column


def test_columns_are_those_of_the_text_as_written_also_behind_what_is_rewritten() -> None:
    assert refusal("//lshw:*/lshw:a[count(1)]")[1] == 23


@pytest.mark.parametrize(
    ("text", "column", "rewrite"),
    [
        ("//a[@b=“c”]", 8, '//a[@b="c"]'),
        ("//a = ‘x’", 7, "//a = 'x'"),
        ('//a = "it’s" or //b = „y“', 23, '//a = "it’s" or //b = "y"'),
        ("//a = “x” or", 7, None),
        ("//a = ‘it's’", 7, None),
    ],
)
def test_typographic_quotes_are_replaced_where_that_makes_a_definition(
    text: str, column: int, rewrite: str | None
) -> None:
    with pytest.raises(DefinitionError, match="typographic quote") as caught:
        check(text)
    assert (caught.value.column, caught.value.rewrite) == (column, rewrite)


def test_nesting_is_bounded() -> None:
    def nested(levels: int) -> str:
        return "(" * (levels - 1) + "a" + ")" * (levels - 1)

    assert check(nested(MAX_NESTING)).type == "node-set"
    message, column = refusal(nested(MAX_NESTING + 1))
    assert "nested deeper than 32" in message
    assert column == MAX_NESTING + 1
    assert "nested deeper" in refusal("a[" * 2000 + "1" + "]" * 2000)[0]
    assert "nested deeper" in refusal("not(" * 2000 + "a" + ")" * 2000)[0]


def test_length_is_bounded() -> None:
    assert check("'" + "x" * (MAX_LENGTH - 2) + "'").type == "string"
    message, column = refusal("'" + "x" * (MAX_LENGTH - 1) + "'")
    assert "16,385 characters" in message
    assert column == MAX_LENGTH + 1


@pytest.mark.parametrize(
    ("piece", "tokens"),
    [
        *[("|a", 2), ("/a", 2), ("//a", 2), ("=1", 2), ("+1", 2), (" - a", 2), ("/@a", 3)],
        *[("[1]", 3), ("[.]", 3), (" or 0", 2)],
    ],
)
def test_the_longest_chain_that_is_accepted_evaluates(piece: str, tokens: int) -> None:
    count = (MAX_TOKENS - 2) // tokens  # without the first name and the end
    if len(piece) * count < MAX_LENGTH - len(piece):
        message, _ = refusal("a" + piece * (count + 1))
        assert "more than 8,192 names and signs" in message
    else:
        count = (MAX_LENGTH - 1) // len(piece)
    compiled = evaluation.compile("a" + piece * count)
    for document in grammar.DOCUMENTS:
        compiled.matches(document)


# -- types and the tree ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "static_type"),
    [
        ("/", "node-set"),
        ("//node", "node-set"),
        ("true", "node-set"),
        ("true()", "boolean"),
        ("(//a | //b)[1]/c", "node-set"),
        ("id('x')", "node-set"),
        ("//a > 1", "boolean"),
        ("//a and //b", "boolean"),
        ("count(//a)", "number"),
        ("-//a", "number"),
        ("//a * //b", "number"),
        ("* * *", "number"),
        ("div div div", "number"),
        ("or or or", "boolean"),
        ("not //a", "node-set"),  # a path through elements called not
        ("/ and /x", "node-set"),  # and so is this, through elements called and
        ("string(//a)", "string"),
        ("'x'", "string"),
        ("1.5", "number"),
    ],
)
def test_the_static_type(text: str, static_type: str) -> None:
    assert check(text).type == static_type


def test_operators_bind_as_xpath_says() -> None:
    def shape(part: Part) -> object:
        if isinstance(part, syntax.Operation):
            symbols = "".join(operator.symbol for operator in part.operators)
            return (symbols, *map(shape, part.operands))
        if isinstance(part, syntax.Negation):
            return ("minus" * part.signs, shape(part.operand))
        assert isinstance(part, syntax.NumberLiteral | syntax.Path)
        return int(part.value) if isinstance(part, syntax.NumberLiteral) else "path"

    def tree(text: str) -> object:
        return shape(check(text).ast)

    assert tree("1 or 2 and 3 = 4 < 5 + 6 * 7") == (
        *("or", 1),
        ("and", 2, ("=", 3, ("<", 4, ("+", 5, ("*", 6, 7))))),
    )
    assert tree("1 * 2 + 3 < 4 = 5 and 6 or 7") == (
        "or",
        ("and", ("=", ("<", ("+", ("*", 1, 2), 3), 4), 5), 6),
        7,
    )
    assert tree("1 - 2 + 3 - 4") == ("-+-", 1, 2, 3, 4)
    assert tree("1 - (2 + 3) - 4") == ("--", 1, ("+", 2, 3), 4)
    assert tree("1 or 2 and 3 or 4") == ("oror", 1, ("and", 2, 3), 4)
    assert tree("- - a | b * 2") == ("*", ("minusminus", ("|", "path", "path")), 2)


def test_a_path_is_kept_step_by_step_with_its_columns() -> None:
    text = "//node[@id='a'] / ../ancestor::p:*"
    ast = check(text).ast
    assert isinstance(ast, syntax.Path)
    assert ast.absolute
    assert [(step.written, step.axis) for step in ast.steps] == [
        ("//", "descendant-or-self"),
        ("", "child"),
        ("..", "parent"),
        ("::", "ancestor"),
    ]
    assert [text[step.start : step.end] for step in ast.steps] == [
        "//",
        "node[@id='a']",
        "..",
        "ancestor::p:*",
    ]
    test = ast.steps[3].test
    assert isinstance(test, syntax.NameTest)
    assert (test.prefix, test.local, text[test.start : test.end]) == ("p", "*", "p:*")


@pytest.mark.parametrize("text", [text for text in REAL if text not in BROKEN])
def test_every_part_lies_inside_its_parent_and_after_its_sibling(text: str) -> None:
    def walk(part: Part) -> None:
        at = part.start
        for child in children(part):
            assert at <= child.start < child.end <= part.end
            at = child.end if not isinstance(child, syntax.NameTest) else child.start
            walk(child)

    ast = check(text).ast
    assert (ast.start, ast.end) == (0, len(text))
    walk(ast)


def test_a_span_has_the_parentheses_of_its_parts() -> None:
    text = " ( 1 + 2 ) * - ( 3 ) "
    ast = check(text).ast
    assert text[ast.start : ast.end] == "( 1 + 2 ) * - ( 3 )"
    assert [text[part.start : part.end] for part in children(ast)] == ["1 + 2", "- ( 3 )"]


# -- namespaces ------------------------------------------------------------------------------------


def test_a_prefix_that_is_not_declared_stands_for_its_own_name() -> None:
    checked = check("//lldp:chassis[@x:id]/y:a", {"y": "urn:y", "unused": "urn:z"})
    assert checked.libxml2_namespaces == {"lldp": "lldp", "x": "x", "y": "urn:y"}
    assert checked.libxml2_text == checked.text
    assert checked.namespaces == {"y": "urn:y", "unused": "urn:z"}
    assert check("//@xml:lang").libxml2_namespaces == {}


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("lshw:node", "node"),
        ("//lshw:node[@lshw:id = 'lshw:id']/lshw:size", "//node[@id = 'lshw:id']/size"),
        ("lshw:*[2]", "*[namespace-uri()=''][2]"),
        ("@lshw:*", "@*[namespace-uri()='']"),
        ("ancestor :: lshw:* | lldp:*", "ancestor :: *[namespace-uri()=''] | lldp:*"),
        ("lshw:div div lshw:div", "div div div"),
        ("count(lshw:*)*lshw:a", "count(*[namespace-uri()=''])*a"),
    ],
)
def test_the_lshw_prefix_stands_for_no_namespace(text: str, rewritten: str) -> None:
    checked = check(text)
    assert checked.libxml2_text == rewritten
    assert "lshw" not in checked.libxml2_namespaces


def test_a_declared_lshw_prefix_is_a_prefix_like_any_other() -> None:
    checked = check("//lshw:node", {"lshw": "urn:x"})
    assert checked.libxml2_text == "//lshw:node"
    assert checked.libxml2_namespaces == {"lshw": "urn:x"}


@pytest.mark.parametrize(
    ("prefix", "uri"),
    [
        ("", "u"),
        ("1a", "u"),
        ("a:b", "u"),
        ("a b", "u"),
        ("a", ""),
        ("a", "\0"),
        ("xmlns", "u"),
        ("a", "http://www.w3.org/2000/xmlns/"),
        ("xml", "u"),
        ("a", "http://www.w3.org/XML/1998/namespace"),
    ],
)
def test_what_cannot_be_declared_is_refused_without_a_column(prefix: str, uri: str) -> None:
    assert refusal("//a", {prefix: uri})[1] is None
