"""What workers learn of the documents that they evaluate, with every evaluator."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import zstandard

from fixtures.generate import generate
from tagmill_expressions import documents
from tagmill_expressions.vocabulary import State, Vocabulary
from tagmill_worker.evaluators import base
from tests.workers.running import EVALUATORS, VARIABLE, run
from tests.workers.test_evaluators import BARE, GPU, image_of, silent
from tests.workers.test_worker import Rig


@pytest.fixture(params=EVALUATORS)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    return str(request.param)


def learnt(name: str, found: dict[int, Any], slots: int | None = None) -> Vocabulary:
    learn = sum(1 << slot for slot in found) if slots is None else slots
    answers = image_of(base.load(name), found).evaluate([], None, silent, learn)
    assert answers.vocabulary is not None
    return answers.vocabulary


def test_it_is_that_of_the_composed_documents(name: str) -> None:
    nodes = [*generate(120, 5, "lean"), *generate(10, 6, "server")]
    found = learnt(name, {slot: node.probes for slot, node in enumerate(nodes)})
    expected = Vocabulary.of(documents.compose(node.probes) for node in nodes)
    assert found.dump() == expected.dump()


STRANGE = [
    "<a>x<!-- y -->z</a>",
    "<a><![CDATA[1]]>2</a>",
    "<a><?pi data?></a>",
    "<a xmlns='u' xmlns:p='u' p:x='1' x='2'><p:a/><b xmlns=''/></a>",
    "<a><b><a/><c><b/></c></b> mixed <b>1e5</b><b/></a>",
    f"<a long='{'x' * 101}' wide='{'é' * 100}'> 12 </a>",
    "<list/>",
]


@pytest.mark.parametrize("xml", STRANGE)
def test_it_is_exact_about_strange_documents(name: str, xml: str) -> None:
    probes = {"lshw": xml, "zoo": "<z a='1'><z/></z>"}
    expected = Vocabulary.of([documents.compose(probes)])
    assert learnt(name, {3: probes}).dump() == expected.dump()


def test_values_beyond_its_bounds_are_not_taken_for_absent(name: str) -> None:
    many = {
        n: {"lshw": f"<list><node id='n{n}'><serial>{n}</serial></node></list>"}
        for n in range(1100)
    }
    found = learnt(name, many)
    assert found.dump() == Vocabulary.of(documents.compose(p) for p in many.values()).dump()
    ids = found.elements[State("node", False)].attributes["id"]
    assert ids.kept is None
    assert all(ids.may_have(f"n{n}") for n in many)
    assert not all(ids.may_have(f"m{n}") for n in many)


def test_only_the_slots_asked_for_are_learnt(name: str) -> None:
    found = learnt(name, {0: {"lshw": GPU}, 5: {"lshw": BARE}}, slots=1 << 5)
    assert (found.documents, set(found.roots)) == (1, {State("node", False)})


def test_a_document_that_nobody_can_read_is_left_out(name: str) -> None:
    assert learnt(name, {0: {"lshw": "<list>"}, 1: {"lshw": BARE}}).documents == 1


def unpacked(result: Any) -> Vocabulary:
    whole = Vocabulary()
    for part in result.vocabulary:
        whole.merge(Vocabulary.load(zstandard.decompress(base64.b64decode(part))))
    return whole


def named(vocabulary: Vocabulary) -> set[str]:
    return {state.name for state in vocabulary.elements}


def test_a_worker_learns_a_partition_once_and_then_what_changes(name: str) -> None:
    async def story() -> None:
        rig = Rig("--batch-nodes", "2")
        partition = rig.partition(1, ["<a/>", "<b/>", "<c/>"])
        rig.api.expressions = {7: "//x", 8: "//y"}
        steps = [
            # Nothing stored: all pages; the same again, as the first completion was lost.
            (-1, None, 3, {"a", "b", "c"}),
            (-1, 3, 3, {"a", "b", "c"}),
            (3, None, 0, set()),
        ]
        rig.start()
        for number, (stored, base_rev, count, names) in enumerate(steps, 1):
            rig.api.vocabulary_revs[1] = stored
            rig.api.enqueue({1: {7: base_rev}})
            await rig.results(number)
            result = rig.api.results[-1]
            assert result.vocabulary_base == stored
            assert (unpacked(result).documents, named(unpacked(result))) == (count, names)
        partition.put(1, "<d/>")
        rig.api.enqueue({1: {7: 3}})
        await rig.results(4)
        assert named(unpacked(rig.api.results[-1])) == {"d"}
        # What it holds is newer than what is stored: an earlier completion did not arrive.
        partition.put(2, None)
        rig.api.enqueue({1: {7: 4}})
        await rig.results(5)
        assert named(unpacked(rig.api.results[-1])) == {"d"}
        await rig.stop()

    run(story())


def test_a_worker_without_an_image_learns_from_a_delta(name: str) -> None:
    async def story() -> None:
        rig = Rig()
        partition = rig.partition(1, ["<a/>", "<b/>"])
        partition.put(0, "<c/>")
        partition.put(1, "<d/>")
        rig.api.expressions = {7: "//x"}
        rig.api.matches[7, 1] = (3, 0)
        rig.api.vocabulary_revs[1] = 2
        rig.start()
        rig.api.enqueue({1: {7: 3}})
        await rig.results(1)
        assert named(unpacked(rig.api.results[0])) == {"c", "d"}
        assert [page["since"] for page in rig.api.pages] == [2]
        await rig.stop()

    run(story())


def test_nothing_is_learnt_unless_it_is_asked_for(name: str) -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<a/>"])
        rig.api.expressions = {7: "//x"}
        rig.start()
        rig.api.enqueue({1: {7: None}})
        await rig.results(1)
        assert rig.api.results[0].vocabulary is None
        await rig.stop()

    run(story())
