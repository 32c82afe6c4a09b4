from __future__ import annotations

import os
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernel import grammar
from tests.kernel.reference import disagreements

# 125 batches of 20 documents and 40 expressions are 100,000 pairs. A longer run asks for more.
BATCHES = int(os.environ.get("TAGMILL_DIFFERENTIAL_BATCHES", "125"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(st.randoms(use_true_random=False))
def test_any_expression_means_on_any_document_what_lxml_says(rng: Random) -> None:
    documents = [grammar.document(rng) for _ in range(2)]
    expressions = [grammar.expression(rng) for _ in range(2)]
    assert disagreements(documents, expressions, grammar.NAMESPACES) == []


@settings(max_examples=BATCHES, deadline=None, suppress_health_check=SLOW)
@given(st.integers(min_value=0, max_value=2**63))
def test_a_hundred_thousand_pairs_agree_with_lxml(seed: int) -> None:
    rng = Random(seed)
    documents = [grammar.document(rng) for _ in range(20)]
    expressions = [grammar.expression(rng, depth=rng.randrange(1, 5)) for _ in range(40)]
    assert disagreements(documents, expressions, grammar.NAMESPACES)[:3] == []
