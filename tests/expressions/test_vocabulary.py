"""What a vocabulary keeps, and that it never takes what is there for absent."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fixtures.generate import generate
from tagmill_expressions import vocabulary as module
from tagmill_expressions.documents import compose
from tagmill_expressions.vocabulary import State, Values, Vocabulary, is_number, to_number


def xml(text: str) -> etree._Element:
    return etree.fromstring(text)


def filled(values: range, prefix: str = "host-") -> Vocabulary:
    return Vocabulary.of(xml(f'<node id="{prefix}{number}"/>') for number in values)


def ids(vocabulary: Vocabulary) -> Values:
    return vocabulary.elements[State("node", False)].attributes["id"]


def test_it_keeps_names_attributes_and_texts_with_the_number_of_documents() -> None:
    vocabulary = Vocabulary.of(
        [
            xml('<list><node id="a"><node id="b"/><node id="b"/><size>1</size></node></list>'),
            xml('<node id="c" xmlns:l="lldp"><node id="b"/><l:chassis>x</l:chassis></node>'),
        ]
    )
    assert vocabulary.documents == 2
    assert vocabulary.roots == {State("list", False): 1, State("node", False): 1}
    machine = vocabulary.elements[State("node", False)]
    assert machine.documents == 2
    assert State("{lldp}chassis", False) in machine.children
    assert machine.attributes["id"].kept == {"a": 1, "c": 1}
    assert vocabulary.elements[State("node", True)].attributes["id"].kept == {"b": 2}
    assert vocabulary.elements[State("size", False)].text.kept == {"1": 1}


def test_the_text_of_an_element_with_children_is_not_known() -> None:
    vocabulary = Vocabulary.of([xml("<list><a>1</a><a>2<b/></a><c>1<!-- --></c></list>")])
    assert vocabulary.elements[State("a", False)].text.may_have("anything")
    assert vocabulary.elements[State("c", False)].text.may_have("anything")
    assert not vocabulary.elements[State("b", False)].text.may_have("anything")


def test_too_many_values_become_a_filter_that_never_denies_one() -> None:
    values = ids(filled(range(module.MAX_VALUES + 500)))
    assert values.kept is None
    assert not values.listed
    assert all(values.may_have(f"host-{number}") for number in range(module.MAX_VALUES + 500))
    denied = sum(not values.may_have(f"gpu-{number}") for number in range(1000))
    assert denied > 990


def test_a_long_value_is_neither_kept_nor_denied() -> None:
    long = "x" * (module.MAX_LENGTH + 1)
    values = ids(Vocabulary.of([xml(f'<node id="{long}"/>')]))
    assert values.kept == {}
    assert values.may_have(long)
    assert not values.may_have("x")
    assert not values.listed


def test_it_is_open_when_there_is_more_than_it_may_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 50)
    vocabulary = filled(range(100))
    assert vocabulary.open
    assert vocabulary.documents == 100
    assert not vocabulary.elements
    assert Vocabulary.load(vocabulary.dump()).open
    small = filled(range(2))
    small.merge(vocabulary)
    assert small.open
    assert small.documents == 102


def test_partitions_merge_to_the_same_bytes_in_any_order() -> None:
    trees = [compose(node.probes) for node in generate(40, seed=3)]
    whole = Vocabulary.of(trees).dump()
    assert Vocabulary.of(reversed(trees)).dump() == whole
    parts = [Vocabulary.of(trees[at : at + 10]).dump() for at in range(0, 40, 10)]
    for order in (parts, parts[::-1], parts[2:] + parts[:2]):
        merged = Vocabulary()
        for part in order:
            merged.merge(Vocabulary.load(part))
        assert merged.dump() == whole


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "1", "x" * 8, "é"]), min_size=1, max_size=3),
        min_size=1,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
    st.integers(0, 8),
)
def test_bounds_do_not_depend_on_the_order(
    documents: list[list[str]], random: object, cut: int
) -> None:
    patch = pytest.MonkeyPatch()
    with patch.context() as small:
        small.setattr(module, "MAX_VALUES", 2)
        small.setattr(module, "MAX_LENGTH", 5)
        small.setattr(module, "MAX_KEPT", 16)
        trees = [
            xml(
                "<n>"
                + "".join(f'<n id="{v}"><{v[0] if v != "1" else "z"}/></n>' for v in d)
                + "</n>"
            )
            for d in documents
        ]
        whole = Vocabulary.of(trees).dump()
        random.shuffle(trees)  # type: ignore[attr-defined]
        first, second = Vocabulary.of(trees[:cut]), Vocabulary.of(trees[cut:])
        first.merge(Vocabulary.load(second.dump()))
        assert first.dump() == whole


def test_a_fleet_s_vocabulary_is_small() -> None:
    vocabulary = Vocabulary.of(compose(node.probes) for node in generate(200, seed=1))
    assert len(vocabulary.dump()) < 100_000
    many = filled(range(4096))
    assert len(many.dump()) < 20_000


def test_what_another_version_dumped_is_refused() -> None:
    with pytest.raises(ValueError, match="version 0"):
        Vocabulary.load(b'{"version":0}')


@pytest.mark.parametrize(
    "text",
    [
        "1",
        " 1 ",
        "-1",
        "1.5",
        ".5",
        "5.",
        "",
        " ",
        "1e5",
        "-1E-5",
        "1e",
        "1e+",
        "e5",
        "1e5x",
        "1.2.3",
        "+1",
        "0x1",
        "1 0",
        "-",
        ".",
        "--1",
        "\u0661",
    ],
)
def test_a_number_is_what_xpath_takes_for_one(text: str) -> None:
    number = etree.XPath("number($text)")(etree.Element("a"), text=text)
    assert is_number(text) == (not math.isnan(number))
    assert not is_number(text) or to_number(text) == number
