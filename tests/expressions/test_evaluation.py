"""What a definition says about a document."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from fixtures.generate import generate
from tagmill_expressions import definition, documents, evaluation
from tagmill_expressions.errors import DefinitionError, EvaluationError

REAL = Path(__file__).parents[1].joinpath("data/real-xpaths.txt").read_text().splitlines()

TREE = documents.compose(
    {"lshw": "<list><node id='a'><size>2</size></node></list>", "lldp": "<lldp><id>1</id></lldp>"}
)


def matches(text: str, namespaces: dict[str, str] | None = None) -> bool:
    return evaluation.compile(text, namespaces or {}).matches(TREE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("//node", True),
        ("//disk", False),
        ("//node/@id = 'b'", False),
        ("1", True),
        ("0", False),
        ("-0", False),
        ("0 div 0", False),
        ("'false'", True),
        ("''", False),
        ("sum(//size) - 2", False),
        ("true()", True),
        ("false()", False),
    ],
)
def test_a_match_is_the_boolean_of_the_expression(text: str, expected: bool) -> None:
    assert matches(text) is expected


def test_the_context_node_is_the_root_element_of_a_tree() -> None:
    compiled = evaluation.compile("self::list and node and not(list) and /list and not(/node)")
    assert compiled.matches(TREE)
    assert compiled.matches(TREE.getroot())


def test_prefixes_reach_probes_and_declared_namespaces() -> None:
    assert matches("//lldp:id = 1")
    assert not matches("//id")
    assert matches("//other:id", {"other": "lldp"})
    assert not matches("//lldp:id", {"lldp": "urn:elsewhere"})
    assert matches("count(//lshw:*) = 3 and count(//*) = 5 and //@lshw:id = 'a'")
    assert matches("name(//lshw:*[3]/..) = ''")


def test_a_positional_predicate_after_the_lshw_prefix_counts_lshw_elements_only() -> None:
    tree = documents.compose({"lshw": '<a><b xmlns="u"/><c/><d/></a>'})
    assert evaluation.compile("name(lshw:*[1]) = 'c' and name(*[2]) = 'c'").matches(tree)


def test_nothing_but_xpath_is_at_hand() -> None:
    for text in ("document('/etc/passwd')", "re:test('a', 'a')", "key('a', 'b')"):
        with pytest.raises(DefinitionError):
            evaluation.compile(text, {"re": "http://exslt.org/regular-expressions"})


def test_an_expression_is_compiled_once() -> None:
    first = evaluation.compile("//a:b/c:d", {"a": "1", "c": "2"})
    assert evaluation.compile("//a:b/c:d", {"c": "2", "a": "1"}) is first
    assert evaluation.compile("//a:b/c:d", {"a": "1"}) is not first


def test_a_failing_evaluation_is_an_error_that_names_the_definition() -> None:
    broken = evaluation.Compiled(definition.check("//node"), etree.XPath("$undefined"))
    with pytest.raises(EvaluationError, match="cannot evaluate //node: Undefined variable"):
        broken.matches(TREE)


def test_real_definitions_evaluate_on_a_fleet_as_lxml_alone_does() -> None:
    fleet = [documents.compose(node.probes) for node in generate(40, seed=5)]
    verdicts = set()
    for text in REAL:
        try:
            compiled = evaluation.compile(text)
        except DefinitionError:
            continue
        plain = etree.XPath(
            f"boolean({text.replace('lshw:', '')})", namespaces={"lldp": "lldp", "nge": "nge"}
        )
        for tree in fleet:
            verdict = compiled.matches(tree)
            assert verdict == plain(tree)
            verdicts.add(verdict)
    assert verdicts == {True, False}
