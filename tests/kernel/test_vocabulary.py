"""The vocabulary of an image is that of its documents, whatever they look like."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("tagmill_kernel")

import tagmill_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from tagmill_expressions.vocabulary import MAX_LENGTH, Vocabulary
from tests.kernel import grammar, reference
from tagmill_worker.evaluators import kernel_vocabulary


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=0, max_value=2**63))
def test_it_is_what_lxml_finds_in_random_documents(seed: int) -> None:
    rng = Random(seed)
    image, expected = tagmill_kernel.PartitionImage(), Vocabulary()
    wanted = 0
    for slot in range(8):
        document = grammar.document(rng)
        image.put(slot, {"lshw": document})
        if rng.random() < 0.8:
            wanted |= 1 << slot
            expected.add(reference.parse(document))
    found = kernel_vocabulary.build(*image.vocabulary(MAX_LENGTH, bytes([wanted])))
    assert found.dump() == expected.dump()


def test_replaced_and_removed_documents_leave_nothing() -> None:
    image = tagmill_kernel.PartitionImage()
    image.put(0, {"lshw": "<a x='1'/>"})
    image.put(1, {"lshw": "<b/>"})
    image.put(0, {"lshw": "<c/>"})
    image.remove(1)
    documents, places = image.vocabulary(MAX_LENGTH)
    assert (documents, [place[0] for place in places]) == (1, ["c"])
    assert tagmill_kernel.PartitionImage().vocabulary(MAX_LENGTH) == (0, [])
