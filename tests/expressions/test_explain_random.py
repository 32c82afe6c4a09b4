"""An explanation and an evaluation agree, whatever the definition."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.generate import generate
from tagmill_expressions.documents import compose
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.evaluation import Compiled, compile
from tagmill_expressions.explain import Explanation, explain
from tagmill_expressions.explain.explainer import is_true
from tests.expressions import grammar

REAL = Path(__file__).parents[1].joinpath("data/real-xpaths.txt").read_text().splitlines()


def consistent(part: Explanation) -> None:
    """Each verdict follows from the operands'."""
    verdicts = [operand.verdict for operand in part.operands]
    if part.type == "node-set":
        assert part.total is not None
        assert part.verdict == (part.total > 0)
        assert len(part.hits) <= min(part.total, 20)
    else:
        assert part.value is not None
        assert part.verdict == is_true(part.value)
    if not part.truncated:
        match part.kind:
            case "and":
                assert part.verdict == all(verdicts)
            case "or" | "union":
                assert part.verdict == any(verdicts)
            case "not":
                assert [part.verdict] == [not verdict for verdict in verdicts]
    for operand in part.operands:
        assert part.column <= operand.column <= operand.end_column <= part.end_column
        consistent(operand)


@settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.one_of(*grammar.EXPRESSIONS.values()))
def test_a_random_definition_is_explained_as_it_is_evaluated(text: str) -> None:
    try:
        compiled = compile(text, grammar.NAMESPACES)
    except DefinitionError:
        return
    for document in grammar.DOCUMENTS:
        whole = explain(compiled.checked, document)
        assert whole.verdict == compiled.matches(document)
        consistent(whole)
        whole.to_dict()


def real() -> list[Compiled]:
    found = []
    for text in REAL:
        try:
            found.append(compile(text))
        except DefinitionError:
            continue
    return found


def test_what_people_wrote_is_explained_as_it_is_evaluated_on_fifty_machines() -> None:
    explained = {True: 0, False: 0}
    trees = [compose(node.probes) for node in generate(50, seed=5, profile="lean")]
    for compiled in real():
        for tree in trees:
            whole = explain(compiled.checked, tree)
            assert whole.verdict == compiled.matches(tree)
            consistent(whole)
            assert not whole.truncated
            explained[whole.verdict] += 1
    assert min(explained.values()) > 500


def test_a_path_that_found_nothing_is_always_explained() -> None:
    tree = compose(next(generate(1, seed=5, profile="server")).probes)
    for compiled in real():
        _explained(explain(compiled.checked, tree))


def _explained(part: Explanation) -> None:
    if part.kind == "path" and not part.verdict:
        assert part.missing is not None
        assert part.missing.sentence.startswith(part.text.rsplit("/", 1)[0][:5])
    for operand in part.operands:
        _explained(operand)
