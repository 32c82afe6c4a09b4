"""The tree of a definition's operators, each operand with its own value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lxml import etree

from tagmill_expressions.definition import Checked
from tagmill_expressions.explain.evaluator import Exhausted, PartEvaluator
from tagmill_expressions.explain.missing import missing
from tagmill_expressions.explain.model import Explanation, Kind
from tagmill_expressions.explain.nodes import hits, shortened
from tagmill_expressions.syntax import (
    PRECEDENCE,
    Call,
    Filter,
    Negation,
    NumberLiteral,
    Operation,
    Path,
    StringLiteral,
    SyntaxTree,
)

_OPERATIONS: dict[int, Kind] = {
    PRECEDENCE["or"]: "or",
    PRECEDENCE["and"]: "and",
    PRECEDENCE["="]: "comparison",
    PRECEDENCE["<"]: "comparison",
    PRECEDENCE["+"]: "arithmetic",
    PRECEDENCE["*"]: "arithmetic",
    PRECEDENCE["|"]: "union",
}


def explain(
    checked: Checked,
    tree: etree._ElementTree | etree._Element,
    *,
    deadline: float | None = None,
) -> Explanation:
    """Why the definition is true or false of the document.

    `verdict` is what `Compiled.matches` says. At most MAX_EVALUATIONS parts are evaluated, and none
    after `deadline`, a time of `time.monotonic`; what is left out is `truncated`. The whole is
    always evaluated. One evaluation can take long: run hostile definitions where they can be
    killed. Raises EvaluationError when libxml2 cannot evaluate the whole, or a part.
    """
    return _Explainer(PartEvaluator(checked, tree, deadline)).explained(checked.ast)


class _Explainer:
    def __init__(self, evaluator: PartEvaluator) -> None:
        self._evaluator = evaluator

    def explained(self, part: SyntaxTree) -> Explanation:
        """Raises Exhausted, unless it is the first."""
        checked = self._evaluator.checked
        # The whole as an evaluator has it: the two cannot differ.
        whole = part is checked.ast
        text = checked.libxml2_text if whole else self._evaluator.printer.expression(part)
        if part.type == "node-set":
            # lxml leaves the document itself out of what it returns: `/` is true all the same.
            total = self._evaluator.count(text)
            explanation = replace(self._bare(part, verdict=total > 0), total=total)
            return self._with_nodes(part, text, explanation)
        if isinstance(part, StringLiteral | NumberLiteral):
            value: bool | float | str = part.value
        else:
            value = self._evaluator.value(text)
        explanation = replace(self._bare(part, verdict=is_true(value)), **_shown(value))
        explanation = self._with_operands(part, explanation)
        return (
            self._with_witnesses(part, explanation)
            if explanation.kind == "comparison"
            else explanation
        )

    def _bare(self, part: SyntaxTree, *, verdict: bool) -> Explanation:
        return Explanation(
            kind=_kind(part),
            text=self._evaluator.source(part),
            column=part.start + 1,
            end_column=part.end,
            type=part.type,
            verdict=verdict,
        )

    def _with_nodes(self, part: SyntaxTree, text: str, explanation: Explanation) -> Explanation:
        evaluator = self._evaluator
        try:
            if explanation.total:
                found = hits(evaluator.evaluate(text), evaluator.checked.libxml2_namespaces)
                explanation = replace(explanation, hits=found)
            else:
                explanation = replace(explanation, missing=missing(evaluator, part))
        except Exhausted:
            return replace(explanation, truncated=True)
        return explanation if explanation.kind == "path" else self._with_operands(part, explanation)

    def _with_witnesses(self, part: SyntaxTree, explanation: Explanation) -> Explanation:
        """The nodes that make a comparison with a literal true."""
        if not explanation.verdict or not isinstance(part, Operation) or len(part.operands) != 2:  # noqa: PLR2004
            return explanation
        left, right = part.operands
        printed = self._evaluator.printer.expression
        if left.type == "node-set" and isinstance(right, StringLiteral | NumberLiteral):
            nodes, condition = left, f". {part.operators[0].symbol} {printed(right)}"
        elif right.type == "node-set" and isinstance(left, StringLiteral | NumberLiteral):
            nodes, condition = right, f"{printed(left)} {part.operators[0].symbol} ."
        else:
            return explanation
        try:
            text = f"({printed(nodes)})[{condition}]"
            found = self._evaluator.evaluate(text)
        except Exhausted:
            return replace(explanation, truncated=True)
        prefixes = self._evaluator.checked.libxml2_namespaces
        return replace(explanation, total=len(found), hits=hits(found, prefixes))

    def _with_operands(self, part: SyntaxTree, explanation: Explanation) -> Explanation:
        operands: list[Explanation] = []
        try:
            for operand in _operands(part):
                operands.append(self.explained(operand))
        except Exhausted:
            explanation = replace(explanation, truncated=True)
        return replace(explanation, operands=tuple(operands))


def _shown(value: bool | float | str) -> dict[str, Any]:
    """A text can be as long as the document, and each operand have it again."""
    if isinstance(value, str):
        return {"value": shortened(value), "length": len(value)}
    return {"value": value}


def is_true(value: bool | float | str) -> bool:
    """`boolean()` of what is no node-set."""
    if isinstance(value, float):
        return value not in {0.0} and value == value  # noqa: PLR0124 - NaN is not itself
    return bool(value)


def _kind(part: SyntaxTree) -> Kind:
    match part:
        case StringLiteral() | NumberLiteral():
            return "value"
        case Path() | Filter():
            return "path"
        case Negation():
            return "arithmetic"
        case Call():
            return "not" if part.name == "not" else "function"
        case Operation():
            return _OPERATIONS[PRECEDENCE[part.operators[0].symbol]]


def _operands(part: SyntaxTree) -> tuple[SyntaxTree, ...]:
    match part:
        case Call():
            return part.arguments
        case Negation():
            return (part.operand,)
        case Operation():
            return part.operands
        case _:
            return ()
