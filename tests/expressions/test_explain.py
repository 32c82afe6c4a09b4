"""Explanations: the tree, what was found, and what was there instead."""

from __future__ import annotations

import json

import pytest
from lxml import etree

from tagmill_expressions.definition import check
from tagmill_expressions.explain import Explanation, Missing, explain
from tagmill_expressions.explain.evaluator import MAX_EVALUATIONS
from tagmill_expressions.explain.nodes import MAX_HITS, MAX_TEXT

MACHINE = etree.ElementTree(
    etree.fromstring(
        """<list>
<node id="rack7" class="system">
 <vendor>QEMU</vendor>
 <node id="cpu:0" class="processor"><size units="Hz">100</size></node>
 <node id="cpu:1" class="processor"><size units="Hz">200</size></node>
 <node id="memory" class="memory"><size units="bytes">4096</size><width>64</width></node>
</node>
<lldp xmlns="lldp"><interface name="eno1"><name>switch01</name></interface></lldp>
</list>"""
    )
)


def explained(text: str) -> Explanation:
    return explain(check(text), MACHINE)


def missing(text: str) -> Missing:
    found = explained(text)
    assert found.total == 0
    assert found.missing is not None
    return found.missing


def test_operators_are_a_tree_in_which_each_operand_has_its_verdict() -> None:
    whole = explained('//vendor = "QEMU" and not(//node[@id="cpu:0"]) or contains(//vendor, "Q")')
    assert (whole.kind, whole.verdict, whole.value) == ("or", True, True)
    both, contains = whole.operands
    assert (both.kind, both.verdict) == ("and", False)
    vendor, negated = both.operands
    assert (vendor.kind, vendor.verdict, vendor.column, vendor.end_column) == (
        "comparison",
        True,
        1,
        17,
    )
    assert [operand.value for operand in vendor.operands] == [None, "QEMU"]
    assert (negated.kind, negated.verdict) == ("not", False)
    assert (negated.operands[0].kind, negated.operands[0].total) == ("path", 1)
    assert (contains.kind, contains.verdict, contains.text) == (
        "function",
        True,
        'contains(//vendor, "Q")',
    )


def test_a_path_has_the_nodes_it_found_with_path_line_and_text() -> None:
    found = explained("//size | //node/@id")
    assert (found.kind, found.verdict, found.total) == ("union", True, 7)
    sizes, ids = found.operands
    assert [(hit.path, hit.line, hit.text) for hit in sizes.hits] == [
        ("/list/node/node[1]/size", 4, "100"),
        ("/list/node/node[2]/size", 5, "200"),
        ("/list/node/node[3]/size", 6, "4096"),
    ]
    assert ids.hits[0].path == "/list/node/@id"
    assert ids.hits[0].text == "rack7"


def test_elements_of_a_probe_have_its_prefix_in_their_path() -> None:
    hit = explained("//lldp:interface/@name").hits[0]
    assert hit.path == "/list/lldp:lldp/lldp:interface/@name"
    declared = explain(check("//l:name/text()", {"l": "lldp"}), MACHINE)
    assert declared.hits[0].path == "/list/l:lldp/l:interface/l:name/text()"


@pytest.mark.parametrize("text", ["//*", "//@*", "//lldp:*", "//lshw:node"])
def test_the_path_of_a_hit_finds_it(text: str) -> None:
    for hit in explained(text).hits:
        (again,) = explained(hit.path).hits
        assert again == hit


def test_a_true_comparison_has_the_nodes_that_make_it_true() -> None:
    found = explained('//node/@id = "cpu:1"')
    assert (found.total, [hit.path for hit in found.hits]) == (1, ["/list/node/node[2]/@id"])
    assert found.operands[0].total == 4
    assert [hit.text for hit in explained("100 < //size").hits] == ["200", "4096"]


def test_only_so_many_hits_and_so_much_text_are_told() -> None:
    many = etree.fromstring("<list>" + f"<a>{'x' * 500}</a>" * 50 + "</list>")
    found = explain(check("//a"), many)
    assert found.total == 50
    assert len(found.hits) == MAX_HITS
    assert all(len(hit.text) == MAX_TEXT for hit in found.hits)


def test_a_value_that_no_node_has_is_explained_with_those_that_exist() -> None:
    found = missing("//node[@id='cpu']")
    assert found == Missing(
        sentence="//node[@id='cpu'] matched 0; ids that exist here: cpu:0, cpu:1",
        longest="//node",
        total=4,
        failed="@id='cpu'",
        column=8,
        instead=("cpu:0", "cpu:1"),
    )


@pytest.mark.parametrize(
    ("text", "longest", "failed", "instead", "told"),
    [
        ("//node[@id='cpu:0']/vendor", "//node[@id='cpu:0']", "vendor", ["size"], "elements in"),
        ("/list/nod/x", "/list", "nod", ["lldp", "node"], "elements in /list"),
        ("/node", "/", "node", ["list"], "the root is: list"),
        ("vendor", "", "vendor", ["lldp", "node"], "elements in the root element"),
        ("//vendr", "/", "vendr", ["vendor"], "no vendr is below /, but: vendor"),
        ("//node/@ip", "//node", "@ip", ["@class", "@id"], "attributes of //node"),
        ("//size/@ip/..", "//size", "@ip", ["@units"], "attributes of //size"),
        ("//vendor/@ip", "//vendor", "@ip", [], "//vendor has no attributes"),
        ("//vendor/x", "//vendor", "x", [], "//vendor has no elements in it"),
        ("//node/id", "//node", "id", [], "id is an attribute of //node: write @id"),
        ("//node[@width=64]", "//node", "@width=64", [], "none of which has @width: write width"),
        ("//node[class='x']", "//node", "class='x'", [], "none of which has class: write @class"),
        ("//ipmi:x", "/", "ipmi:x", [], "this document has no elements of ipmi"),
        (
            "//node[@class='processor'][size > 900]",
            "//node[@class='processor']",
            "size > 900",
            ["100", "200"],
            "values of size that exist here: 100, 200",
        ),
        (
            "//node[ (@class='system') ]/vendor[contains(., 'Intel')]",
            "//node[ (@class='system') ]/vendor",
            "contains(., 'Intel')",
            ["QEMU"],
            "texts that exist here: QEMU",
        ),
        (
            "//node[@id='memory' and @class='processor']",
            "//node",
            "@id='memory' and @class='processor'",
            [],
            "each of which fails another part",
        ),
        ("//node[@class='memory' and @id='cpu']", "//node", "@class='memory' and @id='cpu'",
         ["cpu:0", "cpu:1"], "ids that exist here"),
        ("(//node)[@id='rack7'][@class='bus']", "(//node)[@id='rack7']", "@class='bus'",
         ["system"], "classes that exist here"),
        ("(//nod)[1]/x", "/", "nod", ["node"], "no nod is below /, but: node"),
        ("//size[9]", "//size", "9", [], "//size matched 3 without this condition"),
        ("//comment()", "/", "comment()", [], "/ matched 1"),
        ("//lshw:node[@lshw:id='x']", "//lshw:node", "@lshw:id='x'",
         ["cpu:0", "cpu:1", "memory", "rack7"], "ids that exist here"),
    ],
)  # fmt: skip
def test_a_path_that_found_nothing_says_how_far_it_got(
    text: str, longest: str, failed: str, instead: list[str], told: str
) -> None:
    found = missing(text)
    assert (found.longest, found.failed, list(found.instead)) == (longest, failed, instead)
    assert found.sentence.endswith(told) or told in found.sentence
    assert text[found.column - 1 :].startswith(failed)


def test_numbers_that_json_does_not_know_are_texts() -> None:
    whole = explained("number(//none) + 1 div 0").to_dict()
    assert whole["value"] == "NaN"
    assert whole["operands"][1]["value"] == "Infinity"
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole


def test_the_document_itself_is_found_and_is_no_hit() -> None:
    found = explained("/")
    assert (found.verdict, found.total, found.hits) == (True, 1, ())


def test_a_long_definition_is_explained_in_part() -> None:
    whole = explained(" or ".join(["//none"] * 500 + ["//node"]))
    assert whole.verdict
    assert whole.truncated
    assert 10 < len(whole.operands) < MAX_EVALUATIONS


def test_a_long_path_is_explained_by_its_first_fault() -> None:
    found = missing("/list" + "/*" * 2 + "/nod" * 900)
    assert (found.longest, found.column) == ("/list/*/*", 11)


def test_after_the_deadline_the_whole_alone_is_evaluated() -> None:
    found = explain(check("//node and //vendor"), MACHINE, deadline=0.0)
    assert (found.verdict, found.truncated, found.operands) == (True, True, ())
    path = explain(check("//nod"), MACHINE, deadline=0.0)
    assert (path.verdict, path.total, path.truncated, path.missing) == (False, 0, True, None)


def test_a_long_text_is_shortened_and_its_length_told() -> None:
    tree = etree.ElementTree(etree.fromstring(f"<list><a>{'x' * 100_000}</a></list>"))
    text = " or ".join(["concat(//a, //a)"] * 100)
    whole = explain(check(text), tree).to_dict()
    assert whole["operands"][0]["value"] == "x" * 199 + "…"
    assert whole["operands"][0]["length"] == 200_000
    assert len(json.dumps(whole)) < 300_000
    assert explain(check("//a = 'QEMU'"), tree).operands[1].length == 4


def test_a_path_of_endless_names_is_shortened_at_its_beginning() -> None:
    names = [f"a{number}{'b' * 1000}" for number in range(30)]
    xml = "".join(f"<{name}>" for name in names) + "".join(f"</{name}>" for name in names[::-1])
    tree = etree.ElementTree(etree.fromstring(xml))
    (last,) = explain(check(f"//{names[-1]}"), tree).hits
    assert len(last.path) == 2000
    assert last.path[0] == "…"
    assert last.path.endswith(f"/{names[-1]}")
