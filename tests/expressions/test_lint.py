"""Lint on a small fleet: what it says, and what it must not say."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from fixtures.generate import generate
from tagmill_expressions import vocabulary as vocabulary_module
from tagmill_expressions.definition import check
from tagmill_expressions.documents import compose
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.evaluation import compile
from tagmill_expressions.lint import CODES, Warning, caret, lint
from tagmill_expressions.vocabulary import Vocabulary
from tests.expressions import grammar

TREES = [compose(node.probes) for node in generate(8, seed=11, profile="lean")]
FLEET = Vocabulary.of(TREES)

ONE = [
    etree.fromstring(text)
    for text in (
        '<list><node id="a"><width units="bits">64</width>'
        '<node id="cpu:0" class="cpu"/></node></list>',
        '<list><node id="b"><width units="bits">32</width>'
        '<node id="cpu:1" class="cpu"/></node></list>',
    )
]
SMALL = Vocabulary.of(ONE)


def codes(text: str, vocabulary: Vocabulary | None = SMALL) -> list[str]:
    return [warning.code for warning in lint(check(text), vocabulary)]


def only(text: str, vocabulary: Vocabulary | None = SMALL) -> Warning:
    (warning,) = lint(check(text), vocabulary)
    return warning


def test_a_warning_points_at_its_part_and_rewrites_the_whole_definition() -> None:
    assert only("count(//node[@width=64]) = 2") == Warning(
        code="attribute_is_element",
        message="no <node> has an attribute width: it is an element, write width",
        column=14,
        end_column=19,
        rewrite="count(//node[width=64]) = 2",
    )


def test_warnings_are_for_json_and_in_the_order_of_the_text() -> None:
    found = lint(check("//nod[@id] and //width = 'a'"), SMALL)
    assert [warning.column for warning in found] == [3, 26]
    assert found[0].to_dict() == {
        "code": "unknown_name",
        "message": "no document has an element nod: did you mean node?",
        "column": 3,
        "end_column": 5,
        "rewrite": None,
    }


def test_an_id_with_a_number_is_suggested_for_one_without() -> None:
    warning = only("//node[@id='cpu']")
    assert warning.code == "unknown_value"
    assert warning.message == "no @id is 'cpu' in any document: there are cpu:0, cpu:1"
    assert warning.rewrite == "//node[starts-with(@id, 'cpu:')]"


def test_a_value_of_another_attribute_is_recognised() -> None:
    assert only("//node[@id='cpu:0' and @class='cpu:1']").message.endswith("it is a value of @id")


@pytest.mark.parametrize(
    "text",
    [
        "//node[@id='cpu:0']",
        "//node[@id='a']",
        "//node[@id='cpu' or @id='cpu:0']",
        "//node[@id='cpu']/width | //node[@id='a']/width",
        "//node[starts-with(@id,'cpu')]",
        "//node[contains(@id, ':1')]",
        "//width/@units",
        "//width = 64",
        "//width = '64'",
        "//width > '8'",
        "//width > 128",
        "//width[. = 64]/..",
        "//width/parent::node/@id",
        "//node[not(@class)]",
        "(//node)[2]",
        "/list/node[1]",
        "node/width",
        "count(//node) > 2",
        "count(//node) - 1 = 0",
        "(//node/@id = 'a') = (//width = 64)",
        "(//node = 1 and //width) or //width = 64",
        "//node[ancestor::list]",
        "//node[following-sibling::*]",
        "id('x')/width[@units='bits']",
        "//text()[. = 'x']",
        "//lldp:chassis = 'x' or //width",
        "string(//width)",
        "//processing-instruction('x')",
        "//node[@id != '']",
        "//node[namespace::x]",
        "self::list",
        "//node[lang('en')]",
    ],
)
def test_what_may_be_meant_gets_no_warning(text: str) -> None:
    expected = ["unknown_name"] if "lldp" in text else []
    assert codes(text) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("count(//node) >= 0", "constant"),
        ("count(//node) < 0", "constant"),
        ("'a' = 'a'", "constant"),
        ("not(1)", "constant"),
        ("//width and 'x'", "constant"),
        ("//width[true()]", "constant"),
        ("(//width = 64) > 3", "constant"),
        ("contains(//width, '')", "constant"),
        ("//node[@id=cpu:0]", None),
        ("//node[@class = cpu]", "bare_name_for_string"),
        ("//node[cpu = @class]", "bare_name_for_string"),
        ("//node[@class = class]", "element_is_attribute"),
        ("//width > '10GB'", "number_compared_as_text"),
        ("//width = '064'", "number_compared_as_text"),
        ("//node/@class = 4", "number_compared_as_text"),
        ("-//width", "number_valued"),
        ("//width/node", "unknown_name"),
        ("list/node", "unknown_name"),
        ("/node", "unknown_name"),
        ("//node/@units", "unknown_attribute"),
        ("//node[@id = 'CPU:0']", "unknown_value"),
        ("//node[starts-with(@id,'gpu')]", "unknown_value"),
        ("//ipmi:sensor", "undeclared_prefix"),
        ("//*[@ipmi:x]", "undeclared_prefix"),
        ("//and", "element_named_operator"),
        ("//node//width[1]", "position_of_siblings"),
        ("//node = 1 or //width and //node", "and_before_or"),
        ("1 < //width < 100", "chained_comparison"),
    ],
)
def test_what_is_hardly_meant_gets_its_warning(text: str, code: str | None) -> None:
    if code is None:
        with pytest.raises(Exception, match="colon"):
            check(text)
    else:
        assert code in codes(text)


def test_names_deeper_and_misspelt_are_put_right() -> None:
    assert only("list//width").rewrite is None
    assert only("/list/width").rewrite == "/list//width"
    assert only("(/list)/width").rewrite == "(/list)//width"
    assert only("/list/ width").rewrite is None
    assert only("//node[width and node/class]").rewrite == "//node[width and node/@class]"
    assert only("width").rewrite == "//width"
    assert only("//node[@id='CPU:0']").rewrite == "//node[@id='cpu:0']"
    assert only("not /list").rewrite == "not(/list)"


def test_a_declared_prefix_is_no_undeclared_one() -> None:
    found = lint(check("//x:node", {"x": "urn:x"}), SMALL)
    assert [warning.code for warning in found] == ["unknown_name"]
    assert not lint(check("//lshw:node/@lshw:id", {}), SMALL)


def test_a_root_matters_only_where_the_fleet_has_several() -> None:
    both = Vocabulary.of([*ONE, etree.fromstring('<node id="c"><width>64</width></node>')])
    assert codes("/list/node[@id='a']", both) == ["root_dependent"]
    assert only("/list/node[@id='a']/width", both).rewrite == (
        "(/list/node | /node)[@id='a']/width"
    )
    assert only("/list//width", both).rewrite == "//width"
    assert only("node[@id='cpu:0']", both).rewrite == "//node[@id='cpu:0']"
    assert only("/list/node[1]", both).rewrite is None
    assert codes("/list/node/width or /node/width", both) == []
    assert codes("/*/width", both) == []
    assert codes("//node/node", both) == []
    assert codes("/list/node[@id='a']") == []


def test_few_documents_do_not_say_what_every_node_has() -> None:
    assert codes("//node") == []
    many = Vocabulary.of(ONE * 10)
    assert codes("//node", many) == ["matches_every_node"]
    assert codes("//node[@class='cpu']", many) == ["matches_every_node"]
    assert codes("//node[@id='cpu:0']", many) == []
    assert codes("//node[@id='cpu:0'] or //width", many) == []


@pytest.mark.parametrize("unusable", ["none", "empty", "open"])
def test_without_a_vocabulary_it_speaks_of_the_form_alone(
    unusable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary: Vocabulary | None = None if unusable == "none" else Vocabulary()
    if unusable == "open":
        monkeypatch.setattr(vocabulary_module, "MAX_KEPT", 1)
        vocabulary = Vocabulary.of(ONE)
        assert vocabulary.open
    assert codes("//nod[@idd='x']/node[@id=cpu] > 3", vocabulary) == []
    assert codes("//node > '10GB' and not //x", vocabulary) == [
        "number_compared_as_text",
        "element_named_operator",
    ]


def test_a_set_of_values_that_is_open_is_denied_only_what_it_lacks() -> None:
    documents = [
        etree.fromstring(f'<node id="host-{number}"><node id="cpu"/></node>')
        for number in range(vocabulary_module.MAX_VALUES + 1)
    ]
    fleet = Vocabulary.of(documents)
    assert codes("//node[@id='host-7']", fleet) == []
    assert codes("//node[starts-with(@id,'gpu')]", fleet) == []
    assert codes("//node[@id='gpu']", fleet) == ["unknown_value"]


# -- soundness: what lint says no document has, no document has --------------------------------

NAMESPACES = {"p": "urn:p"}
# Comments, texts among elements, attributes with namespaces, an element in itself.
ODD = [etree.ElementTree(document.getroot()) for document in grammar.DOCUMENTS]

_AXES = ["", "", "", "", "@", "descendant::", "parent::", "ancestor::", "self::", "attribute::"]
_AXES += ["descendant-or-self::", "ancestor-or-self::", "following-sibling::", "preceding::"]
_KINDS = ["..", ".", "text()", "node()", "comment()", "processing-instruction('pi')"]


class Words(NamedTuple):
    trees: list[etree._ElementTree]
    names: list[str]
    values: list[str]


MACHINES = Words(
    TREES,
    [
        *["node", "list", "size", "vendor", "capability", "setting", "capabilities", "width"],
        *["configuration", "lldp:id", "lldp:name", "lldp:chassis", "lldp:*", "*", "gpu", "id"],
        *["class", "units", "value"],
    ],
    ["cpu", "cpu:0", "vmx", "bytes", "QEMU", "64", "switch01", "bank:0", "system", "x", "cores"],
)
ODDITIES = Words(
    ODD,
    ["a", "b", "c", "id", "node", "list", "p:a", "p:id", "p:*", "*", "xml:lang", "xml:id", "x"],
    ["1", "2", "3", "x", "en", "text", "3.0"],
)


def relative(words: Words) -> st.SearchStrategy[str]:
    step = st.tuples(st.sampled_from(_AXES), st.sampled_from(words.names)).map("".join)
    return st.lists(step | st.sampled_from(_KINDS), min_size=1, max_size=2).map("/".join)


def predicates(words: Words) -> st.SearchStrategy[str]:
    path, value = relative(words), st.sampled_from(words.values)
    return st.one_of(
        path,
        st.builds("{} = '{}'".format, path, value),
        st.builds("'{1}' = {0}".format, path, value),
        st.builds("contains({}, '{}')".format, path, value),
        st.builds("{} >= {}".format, path, st.integers(0, 64)),
    )


@st.composite
def paths(draw: st.DrawFn, words: Words = MACHINES) -> str:
    text = ""
    for _ in range(draw(st.integers(1, 4))):
        step = draw(relative(words))
        text += draw(st.sampled_from(["/", "/", "//"])) + step
        if not step.endswith(".") and draw(st.booleans()):
            text += f"[{draw(predicates(words))}]"
    return text if draw(st.integers(0, 3)) else text.lstrip("/")


_ABSENT = {"unknown_name", "unknown_attribute", "unknown_value", "attribute_is_element"}
_ABSENT |= {"element_is_attribute", "undeclared_prefix"}


@pytest.mark.parametrize("words", [MACHINES, ODDITIES], ids=["machines", "oddities"])
def test_what_lint_denies_no_document_has(words: Words) -> None:
    fleet = Vocabulary.of(words.trees)

    @settings(derandomize=True, deadline=None, database=None, max_examples=400)
    @given(paths(words))
    def is_sound(text: str) -> None:
        compiled = compile(text, NAMESPACES)
        found = {warning.code for warning in lint(compiled.checked, fleet)}
        if found & _ABSENT:
            assert not any(compiled.matches(tree) for tree in words.trees), found

    is_sound()


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(relative(MACHINES), st.sampled_from(["=", ">", "<="]), st.sampled_from(["5", "'10GB'"]))
def test_what_lint_calls_no_number_equals_none(path: str, symbol: str, number: str) -> None:
    compiled = compile(f"//node/{path} {symbol} {number}")
    found = {warning.code for warning in lint(compiled.checked, FLEET)}
    if "number_compared_as_text" in found:
        assert not any(compiled.matches(tree) for tree in TREES)


@settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.one_of(*grammar.EXPRESSIONS.values()))
def test_anything_gets_warnings_of_its_columns_and_what_is_constant_is(text: str) -> None:
    try:
        compiled = compile(text, grammar.NAMESPACES)
    except DefinitionError:
        return
    for warning in lint(compiled.checked, Vocabulary.of(ODD)):
        assert warning.code in CODES
        assert 1 <= warning.column <= warning.end_column <= len(text)
        if warning.rewrite is not None:
            check(warning.rewrite, grammar.NAMESPACES)
        part = text[warning.column - 1 : warning.end_column]
        if warning.code == "constant" and "()" not in part and "." not in part:
            answers = {compile(part).matches(tree) for tree in ODD}
            assert answers == {" is true " in warning.message}


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(paths(), st.sampled_from(["=", "and", "or", "|"]), paths())
def test_a_rewrite_of_anything_is_a_definition(left: str, sign: str, right: str) -> None:
    for warning in lint(check(f"{left} {sign} {right}"), FLEET):
        assert warning.code in CODES
        if warning.rewrite is not None:
            check(warning.rewrite)


# -- caret --------------------------------------------------------------------------------------


def test_a_caret_is_below_the_column() -> None:
    assert caret("//node[", 8, "expected more") == "//node[\n       ^ expected more"


def test_a_caret_shows_the_line_of_the_column_and_keeps_tabs() -> None:
    assert caret("//a and\n\t//b[\nor", 14, "here") == "\t//b[\n\t    ^ here"
    assert caret("", 1, "empty") == "\n^ empty"
    assert caret("abc", 99, "end") == "abc\n   ^ end"


def test_a_definition_of_a_thousand_faults_gets_a_hundred_warnings() -> None:
    text = "/".join(["/list", *["node[@id='zz']"] * 900])
    found = lint(check(text), SMALL)
    assert [warning.column for warning in found[:2]] == [16, 31]
    assert len(found) == 100
