from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest
import tagmill_kernel
from tagmill_kernel import Expression, PartitionImage

from tests.kernel import grammar
from tests.kernel.reference import parse, verdict


def members(image: PartitionImage, text: str, slots: bytes | None = None) -> set[int]:
    (bitmap,) = image.evaluate([Expression(text)], slots)
    return {bit for bit in range(len(bitmap) * 8) if bitmap[bit // 8] >> bit % 8 & 1}


def image_of(*documents: str) -> PartitionImage:
    image = PartitionImage()
    for slot, document in enumerate(documents):
        image.put(slot, {"lshw": document})
    return image


def test_a_slot_without_a_document_matches_nothing_also_not_true() -> None:
    image = image_of("<a/>")
    image.put(9, {"lshw": "<a/>"})
    assert members(image, "true()") == {0, 9}
    assert image.remove(0) and not image.remove(0)
    assert members(image, "true()") == {9}
    assert image.slots() == [9] and len(image) == 1


def test_only_the_asked_slots_are_evaluated() -> None:
    image = image_of(*["<a/>"] * 20)
    assert members(image, "/a", bytes([0b101, 0, 1])) == {0, 2, 16}
    assert members(image, "/a", b"") == set()


def test_replacing_a_document_replaces_its_verdict() -> None:
    image = image_of("<a/>", "<b/>")
    image.put(0, {"lshw": "<b/>"})
    assert members(image, "/a") == set() and members(image, "/b") == {0, 1}


def test_a_refused_document_leaves_the_old_one_in_place() -> None:
    image = image_of("<a/>")
    with pytest.raises(tagmill_kernel.DocumentRefused):
        image.put(0, {"lshw": "<a>", "lldp": "<b/>"})
    with pytest.raises(tagmill_kernel.DocumentRefused):
        image.put(0, {"lshw": "<c/>", "lldp": "<b>"})
    assert members(image, "/a") == {0}


def test_other_probes_are_the_last_children_of_the_root_in_their_own_namespace() -> None:
    image = PartitionImage()
    probes = {"lldp": "<lldp><name>switch01</name></lldp>", "lshw": "<list><node/></list><!--e-->"}
    image.put(0, probes)
    assert members(image, "/list/*[last()][self::lldp:lldp]/lldp:name = 'switch01'") == {0}
    assert members(image, "//lldp | //name") == set()
    assert members(image, "/comment() and count(/list/*) = 2") == {0}


def test_the_prefix_lshw_reaches_elements_of_no_namespace() -> None:
    assert members(image_of("<a><b/></a>"), "//lshw:b") == {0}


def test_churn_does_not_leak_and_keeps_every_verdict() -> None:
    image = PartitionImage()
    for turn in range(3000):
        image.put(turn % 50, {"lshw": f"<a><b serial='{turn}'>t{turn}</b></a>"})
    assert members(image, "//b[@serial = 'x']") == set()
    assert members(image, "//b[@serial >= 2950]") == set(range(50))
    assert members(image, "//b[. = 't2999']") == {49}
    assert image.nbytes < 200_000


def test_equal_subtrees_are_stored_once() -> None:
    document = "<list>" + "".join(f"<node id='n{n}'><size>1</size></node>" for n in range(200))
    one = image_of(document + "</list>").nbytes
    many = image_of(*[f"{document}<serial>{n}</serial></list>" for n in range(50)]).nbytes
    # Each document adds its root's row and its serial, not its nodes.
    assert many < one * 10


def test_a_saved_image_answers_as_before(tmp_path: Path) -> None:
    rng = Random(3)
    documents = [grammar.document(rng) for _ in range(30)]
    image = image_of(*documents)
    image.remove(7)
    image.save(tmp_path / "image")
    opened = PartitionImage.open(tmp_path / "image")
    assert opened.slots() == image.slots()
    expressions = [Expression(grammar.expression(rng), grammar.NAMESPACES) for _ in range(300)]
    assert opened.evaluate(expressions) == image.evaluate(expressions)
    opened.put(7, {"lshw": documents[7]})
    assert members(opened, "true()") == set(range(30))


def test_a_damaged_file_is_an_error_wherever_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "image"
    image_of("<a b='1'>text</a>", "<b/>").save(path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(tagmill_kernel.ImageError):
            PartitionImage.open(path)
        path.write_bytes(whole[:at])
        with pytest.raises(tagmill_kernel.ImageError):
            PartitionImage.open(path)
    with pytest.raises(tagmill_kernel.ImageError):
        PartitionImage.open(tmp_path / "absent")


def test_an_expression_that_runs_away_is_stopped_and_the_others_proceed() -> None:
    # Every element is like no other, and a position among what follows is counted for each.
    image = image_of("<a>" + "".join(f"<b n='{n}'/>" for n in range(300)) + "</a>")
    stopped, answered = image.evaluate(
        [Expression("count(//b/following::*[last()]) = 2"), Expression("//b")], budget_steps=20_000
    )
    assert isinstance(stopped, tagmill_kernel.BudgetExceeded)
    assert answered == b"\x01"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("//node[", 8),
        ("", 1),
        ("a b", 3),
        ("invalid::definition", 1),
        ('//node[@id="x]', 12),
        ("id('x')", 1),
        ("namespace::*", 1),
        ("$x", 1),
        ("foo()", 1),
        ("position() = 1", 1),
        ("count(1)", 1),
        ("é = ", 5),
    ],
)
def test_a_refused_expression_names_its_column(text: str, column: int) -> None:
    with pytest.raises(tagmill_kernel.KernelRefused) as caught:
        Expression(text)
    assert caught.value.args[1] == column


@pytest.mark.parametrize("text", ["(" * 99_999, "a[" * 99_999, "not(" * 999, "1" + "+1" * 999])
def test_an_expression_nested_without_end_is_refused(text: str) -> None:
    with pytest.raises(tagmill_kernel.KernelRefused):
        Expression(text)


def test_readers_and_writers_share_an_image() -> None:
    image = image_of(*[f"<a n='{n}'><b/></a>" for n in range(200)])
    wrong: list[object] = []

    def read() -> None:
        for _ in range(200):
            if members(image, "count(//b) = 1") != set(range(200)):
                wrong.append("a document was seen half")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(2000):
        image.put(turn % 200, {"lshw": f"<a n='{turn}'><b/></a>"})
    for reader in readers:
        reader.join()
    assert wrong == []


def test_the_plan_says_which_engine_answers() -> None:
    assert Expression("//node[@id='x']/size > 1").explain.startswith("columns")
    assert Expression("//a/following::b").explain.startswith("subtrees")
    assert Expression("//a/following::b[2]").explain.startswith("subtrees")
    assert Expression("count(//a/following::b[2])").explain.startswith("interpreter")


def test_namespaces_may_rename_a_prefix() -> None:
    document = "<a xmlns:p='urn:p'><p:b/></a>"
    tree = parse(document)
    namespaces = {"z": "urn:p"}
    (bitmap,) = image_of(document).evaluate([Expression("//z:b", namespaces)])
    assert bool(bitmap[0]) is verdict("//z:b", namespaces, tree) is True
