"""One suite over every evaluator; then what is the kernel's alone; then the child."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
import zstandard

from fixtures.generate import generate
from fixtures.tags import SAMPLE_TAGS
from tagmill_expressions.errors import ExpressionError
from tagmill_worker.evaluators import base
from tagmill_worker.evaluators.child import Child
from tagmill_worker.evaluators.child_process import ChildProcess
from tagmill_worker.evaluators.saving import Saving
from tagmill_worker.pages import Page
from tests.workers.running import EVALUATORS

GPU = "<list><node class='display'><vendor>NVIDIA</vendor></node></list>"
BARE = "<node class='system'/>"
only_kernel = pytest.mark.skipif(not base.has_kernel(), reason="the kernel is not built")
Documents = dict[int, Mapping[str, str]]


def silent(expression: int, slot: int) -> None:
    """A note that nobody reads."""


@pytest.fixture(params=EVALUATORS)
def evaluator(request: pytest.FixtureRequest) -> base.Evaluator:
    return base.load(request.param)


def image_of(evaluator: base.Evaluator, documents: Documents, shadow: float = 0.0) -> base.Image:
    image = evaluator.image(documents.items, shadow)
    for slot, probes in documents.items():
        image.put(slot, probes)
    return image


def ask(
    evaluator: base.Evaluator, documents: Documents, *texts: str, slots: int | None = None
) -> base.Answers:
    expressions = [(key, evaluator.compile(text, {})) for key, text in enumerate(texts)]
    return image_of(evaluator, documents).evaluate(expressions, slots, silent)


def test_every_expression_is_answered_for_every_document(evaluator: base.Evaluator) -> None:
    found = ask(evaluator, {0: {"lshw": GPU}, 9: {"lshw": BARE}}, "//vendor", "true()", "1 = 2")
    assert found.members == {0: 1 << 0, 1: 1 << 0 | 1 << 9, 2: 0}
    assert found.documents == 2
    assert not found.failures


def test_a_slot_without_documents_matches_nothing(evaluator: base.Evaluator) -> None:
    found = ask(evaluator, {0: {}, 1: {"lshw": BARE}}, "true()")
    assert found.members == {0: 1 << 1}


def test_only_the_slots_asked_for_are_evaluated(evaluator: base.Evaluator) -> None:
    documents = {slot: {"lshw": GPU} for slot in range(20)}
    found = ask(evaluator, documents, "//vendor", slots=1 << 3 | 1 << 17 | 1 << 30)
    assert found.members == {0: 1 << 3 | 1 << 17}
    assert found.documents == 2


def test_a_removed_slot_is_gone_and_a_replaced_one_is_new(evaluator: base.Evaluator) -> None:
    image = image_of(evaluator, {0: {"lshw": GPU}, 1: {"lshw": GPU}, 2: {"lshw": GPU}})
    image.remove(0)
    image.put(1, {"lshw": BARE})
    found = image.evaluate([(7, evaluator.compile("//vendor", {}))], None, silent)
    assert found.members == {7: 1 << 2}


def test_other_probes_follow_in_their_namespaces_sorted(evaluator: base.Evaluator) -> None:
    probes = {"zoo": "<z/>", "lshw": GPU, "lldp": "<lldp><name>s1</name></lldp>"}
    texts = ["//lldp:name = 's1'", "/*/*[last()][self::zoo:z]", "count(/*/*) = 3", "//name"]
    assert ask(evaluator, {4: probes}, *texts).members == {0: 16, 1: 16, 2: 16, 3: 0}


def test_without_lshw_the_root_is_an_empty_list(evaluator: base.Evaluator) -> None:
    found = ask(evaluator, {0: {"lldp": "<lldp/>"}}, "/list/lldp:lldp", "//node")
    assert found.members == {0: 1, 1: 0}


def test_an_expression_that_is_none_is_refused(evaluator: base.Evaluator) -> None:
    with pytest.raises(ExpressionError):
        evaluator.compile("//node[", {})


def test_a_document_that_nobody_can_read_matches_nothing(evaluator: base.Evaluator) -> None:
    found = ask(evaluator, {0: {"lshw": "<list>"}, 1: {"lshw": GPU}}, "true()")
    assert found.members == {0: 2}
    assert list(found.unreadable) == [0]


def test_the_fleet_gets_the_same_answers_from_all() -> None:
    documents = {n: node.probes for n, node in enumerate(generate(60, 5, "lean"))}
    texts = [tag.definition for tag in SAMPLE_TAGS]
    answers = [ask(base.load(name), documents, *texts).members for name in EVALUATORS]
    assert all(answer == answers[0] for answer in answers)
    assert any(answers[0].values())


@only_kernel
def test_what_the_kernel_does_not_compile_goes_to_lxml() -> None:
    kernel = base.load("kernel")
    expression: Any = kernel.compile("//namespace::*", {})
    assert expression.plan is None
    assert "namespace" in expression.refused
    assert ask(kernel, {3: {"lshw": GPU}}, "//namespace::*", "//vendor").members == {0: 8, 1: 8}


@only_kernel
def test_an_expression_beyond_its_budget_fails_alone() -> None:
    wide = f"<list>{'<node/>' * 3000}</list>"
    # Each node looks at all that follow it, one by one, and so do these.
    following = "following::node/following::node[position() mod 2 = 1]"
    runaway = f"count(//node[count(following::node[count({following}) > 9999]) > 9999]) > 1"
    found = ask(base.load("kernel"), {0: {"lshw": wide}}, runaway, "//node")
    assert found.members == {1: 1}
    assert "steps" in found.failures[0]


@only_kernel
def test_shadowing_counts_documents_and_finds_no_disagreement() -> None:
    kernel = base.load("kernel")
    documents = {n: node.probes for n, node in enumerate(generate(40, 5, "lean"))}
    expressions = [(n, kernel.compile(tag.definition, {})) for n, tag in enumerate(SAMPLE_TAGS)]
    found = image_of(kernel, documents, shadow=1.0).evaluate(expressions, None, silent)
    assert (found.shadowed, found.disagreements) == (40, [])


@only_kernel
def test_shadowing_finds_a_disagreement() -> None:
    """The reference is shown another document than the kernel was."""
    kernel = base.load("kernel")
    image = kernel.image(lambda: [(5, {"lshw": BARE})], 1.0)
    image.put(5, {"lshw": GPU})
    found = image.evaluate([(1, kernel.compile("//vendor", {}))], None, silent)
    assert found.disagreements == [(1, 5)]


@only_kernel
def test_a_document_that_only_the_reference_refuses_is_a_disagreement() -> None:
    kernel = base.load("kernel")
    image = kernel.image(lambda: [(5, {"lshw": "<broken"})], 1.0)
    image.put(5, {"lshw": BARE})
    found = image.evaluate([(1, kernel.compile("//vendor", {}))], None, silent)
    assert (found.disagreements, found.unreadable) == ([(1, 5)], {})


@only_kernel
def test_nobody_is_blamed_for_a_slow_reference() -> None:
    kernel = base.load("kernel")
    image = image_of(kernel, {5: {"lshw": GPU}}, shadow=1.0)
    noted: list[int] = []
    expressions = [(1, kernel.compile("//vendor", {}))]
    image.evaluate(expressions, None, lambda expression, _: noted.append(expression))
    assert base.SHADOWING in noted
    assert set(noted) <= base.BLAMELESS | {base.IDLE}
    noted.clear()
    found = image.evaluate(
        expressions, None, lambda expression, _: noted.append(expression), singly=True
    )
    assert (found.shadowed, base.SHADOWING in noted) == (0, False)


# -- the child ----------------------------------------------------------------------------------


def page(documents: Documents) -> bytes:
    nodes = [{"slot": slot, "rev": 1, "probes": probes} for slot, probes in documents.items()]
    batch = {"partition": 1, "rev": 1, "nodes": nodes, "next": None}
    return zstandard.compress(orjson.dumps(batch))


def asked(key: int, **more: Any) -> dict[str, Any]:
    return {"page": 1, "key": key, "run": [7], "skip": "0", "singly": False, **more}


def opened(name: str, most_bytes: int) -> Child:
    child = Child(base.load(name), silent, most_bytes)
    child.open([(7, "//vendor", {})])
    return child


@only_kernel
def test_a_page_that_is_held_needs_not_be_sent_again() -> None:
    child = opened("kernel", 1 << 20)
    first = child.page(asked(1), page({0: {"lshw": GPU}, 1: {"lshw": BARE}}))
    child.open([(7, "//node", {})])
    second = child.page(asked(1), b"")
    assert (first["held"], first["members"]) == (True, {"7": "1"})
    assert (second["held"], second["members"]) == (True, {"7": "3"})


class Pipe:
    """What is sent to a child, one at a time."""

    is_ready = True

    def send(self, header: dict[str, Any], body: bytes) -> None:
        self.sent = (header["key"], body)


@only_kernel
def test_an_image_that_the_child_has_not_is_made_again_to_be_saved(tmp_path: Path) -> None:
    child, pipe, outcomes = opened("kernel", 1 << 20), Pipe(), []
    images: Any = SimpleNamespace(image_saved=lambda stem, size: outcomes.append(size))
    saving = Saving(images)
    whole = Page(1, 1, None, False, page({0: {"lshw": GPU}}))
    done = saving.add(whole, tmp_path / "x")
    # It was dropped between the answer that says that it is held, and this.
    saving.pump(cast(ChildProcess, pipe), {whole.key})
    assert child.to_save(*pipe.sent) is None
    assert saving.answered({"saved": "x", "missing": True}) == whole.key and not done.called
    saving.pump(cast(ChildProcess, pipe), set())
    held = child.to_save(*pipe.sent)
    assert held is not None
    saving.answered({**child.save(held, str(tmp_path / "x"))})
    assert done.called and outcomes[0] > 0


@only_kernel
def test_a_slot_counts_on_the_first_page_that_names_it() -> None:
    child = opened("kernel", 1 << 20)
    old = child.page(asked(1), page({0: {"lshw": GPU}, 1: {"lshw": GPU}}))
    child.open([(7, "//vendor", {})])
    new = child.page(asked(2), page({0: {}}))
    rest = child.page(asked(1), b"")
    assert (old["members"], new["slots"], new["members"]) == ({"7": "3"}, "1", {})
    assert (rest["slots"], rest["members"], rest["documents"]) == ("2", {"7": "2"}, 1)


@only_kernel
@pytest.mark.parametrize("most_bytes", [0, 10])
def test_what_does_not_fit_passes_through(most_bytes: int) -> None:
    child = opened("kernel", most_bytes)
    answer = child.page(asked(1), page({0: {"lshw": GPU}}))
    assert (answer["held"], answer["image_bytes"], answer["members"]) == (False, 0, {"7": "1"})
    assert child.page(asked(1), b"") == {"page": 1, "missing": True}


@only_kernel
def test_a_dropped_page_frees_its_bytes() -> None:
    child = opened("kernel", 1 << 20)
    assert child.page(asked(1), page({0: {"lshw": GPU}}))["image_bytes"] > 0
    child.drop([1, 99])
    answer = child.page(asked(2), page({}))
    assert answer["image_bytes"] < 10_000
    assert child.page(asked(1), b"") == {"page": 1, "missing": True}


@only_kernel
def test_what_an_image_finds_out_about_itself_is_counted() -> None:
    documents = {n: {"lshw": f"<list><a>{n}</a><b/></list>"} for n in range(200)}
    child, sizes = opened("kernel", 1 << 24), []
    for sent in (page(documents), b"", b""):
        child.open([(7, "//b", {})])
        sizes.append(child.page(asked(1), sent)["image_bytes"])
    assert 0 < sizes[0] < sizes[-1]
    child.drop([1])
    assert 0 <= child.page(asked(2), page({}))["image_bytes"] < 10_000


def test_lxml_holds_no_images() -> None:
    child = opened("lxml", 1 << 20)
    assert child.page(asked(1), page({0: {"lshw": GPU}}))["held"] is False
