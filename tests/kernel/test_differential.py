from __future__ import annotations

import pytest

import os
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernel import grammar
from tests.kernel.reference import disagreements

# 125 batches of 800 pairs are 100,000, always the same. A longer run asks for more, and draws anew.
IS_LONG = "TAGMILL_DIFFERENTIAL_BATCHES" in os.environ
BATCHES = int(os.environ.get("TAGMILL_DIFFERENTIAL_BATCHES", "125"))
# Documents and expressions of a batch. Among many documents, a path that is asked about one of them
# walks through it and leaves the postings alone.
SHAPES = [(20, 40), (20, 40), (20, 40), (200, 4)]
# Large documents take longer, lxml above all: fewer batches, and nothing that visits all pairs of
# nodes again and again.
LARGE_BATCHES = max(1, BATCHES // 2)
LARGE_STEPS = 300_000
LARGE_SECONDS = 0.001
# Documents that have much in common are answered by what they have in common.
FLEET_BATCHES = max(1, BATCHES // 25)
FLEET = 96
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
drawn = settings(derandomize=not IS_LONG, suppress_health_check=SLOW)


@settings(drawn, max_examples=100)
@given(st.randoms(use_true_random=False))
def test_any_expression_means_on_any_document_what_lxml_says(rng: Random) -> None:
    documents = [grammar.document(rng) for _ in range(2)]
    expressions = [grammar.expression(rng) for _ in range(2)]
    assert disagreements(documents, expressions, grammar.NAMESPACES) == []


@settings(drawn, max_examples=BATCHES)
@given(st.integers(min_value=0, max_value=2**63))
def test_a_hundred_thousand_pairs_agree_with_lxml(seed: int) -> None:
    rng = Random(seed)
    many, asked = rng.choice(SHAPES)
    documents = [grammar.document(rng) for _ in range(many)]
    expressions = [grammar.expression(rng, depth=rng.randrange(1, 5)) for _ in range(asked)]
    assert disagreements(documents, expressions, grammar.NAMESPACES)[:3] == []


@settings(drawn, max_examples=FLEET_BATCHES)
@given(st.integers(min_value=0, max_value=2**63))
def test_documents_that_differ_in_values_alone_agree_with_lxml(seed: int) -> None:
    rng = Random(seed)
    documents = grammar.fleet(rng, FLEET)
    expressions = [grammar.expression(rng, depth=rng.randrange(1, 4)) for _ in range(20)]
    assert disagreements(documents, expressions, grammar.NAMESPACES)[:3] == []


@pytest.mark.proof
@settings(drawn, max_examples=LARGE_BATCHES)
@given(st.integers(min_value=0, max_value=2**63))
def test_deep_and_wide_documents_agree_with_lxml(seed: int) -> None:
    rng = Random(seed)
    shapes = [grammar.deep, grammar.deep, grammar.wide, grammar.document]
    documents = [shape(rng) for shape in shapes]
    expressions = [grammar.expression(rng, depth=rng.randrange(1, 4)) for _ in range(40)]
    differ = disagreements(
        documents, expressions, grammar.NAMESPACES, LARGE_STEPS, patience=LARGE_SECONDS
    )
    assert differ[:3] == []
