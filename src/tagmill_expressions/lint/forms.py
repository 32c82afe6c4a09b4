"""Warnings that follow from the form of a definition, whatever the documents contain."""

from __future__ import annotations

from typing import Final

from lxml import etree

from tagmill_expressions.lint.findings import Findings
from tagmill_expressions.lint.places import World
from tagmill_expressions.syntax import (
    Call,
    Filter,
    NameTest,
    Negation,
    NumberLiteral,
    Operation,
    Part,
    Path,
    Step,
    StringLiteral,
    SyntaxTree,
    children,
)

COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})

# Sums are of sizes and of counts here.
_NEVER_NEGATIVE = frozenset({"count", "string-length", "sum"})
# With an argument fewer than they take at most, these read the context node.
_OF_CONTEXT = {"string", "number", "name", "local-name", "namespace-uri", "normalize-space"}
_OF_CONTEXT |= {"string-length"}
_EMPTY = etree.Element("list")


def definition(findings: Findings, whole: SyntaxTree) -> None:
    if whole.type == "number" and not _is_fixed(whole):
        sure = _is_never_negative(whole)
        findings.add(
            "number_valued",
            "a number is true for everything but 0 and NaN: compare it, as in > 0",
            whole,
            replace=(len(findings.text), len(findings.text)),
            by=" > 0" if sure else None,
        )


def condition(findings: Findings, part: SyntaxTree) -> None:
    """Warns of the parts of a definition or a predicate that never change."""
    if isinstance(part, Operation) and part.operators[0].symbol in {"and", "or"}:
        if part.operators[0].symbol == "or":
            _and_before_or(findings, part)
        for operand in part.operands:
            condition(findings, operand)
        return
    if isinstance(part, Call) and part.name in {"not", "boolean"} and not _is_fixed(part):
        condition(findings, part.arguments[0])
        return
    answer = verdict(findings, part)
    if answer is not None:
        word = "true" if answer else "false"
        findings.add(
            "constant", f"{findings.source(part)} is {word} whatever a document contains", part
        )


def verdict(findings: Findings, part: SyntaxTree) -> bool | None:
    """The one truth value that a part can have, if that shows."""
    if _is_fixed(part):
        return bool(etree.XPath(f"boolean({findings.source(part)})")(_EMPTY))
    if isinstance(part, Call) and part.name in {"contains", "starts-with"}:
        wanted = part.arguments[1]
        return True if isinstance(wanted, StringLiteral) and not wanted.value else None
    if isinstance(part, Operation) and len(part.operators) == 1:
        return _of_comparison(findings, part)
    return None


def is_chained(text: str, part: Operation) -> bool:
    """`a < b < c`, or `a = b > c`, without parentheses."""
    if len(part.operators) > 1:
        return True
    return _bare_comparison(text, part) is not None


def chained(findings: Findings, world: World, part: Operation) -> None:
    first = _bare_comparison(findings.text, part)
    if first is None:
        done = findings.text[part.start : part.operands[1].end]
    else:
        done = findings.source(first)
    findings.add(
        "chained_comparison",
        f"comparisons do not chain: {done} is done first, and gives true or false for the other",
        part,
        by=_of_setting(findings, world, part, first),
    )


def _bare_comparison(text: str, part: Operation) -> Operation | None:
    for at, operand in enumerate(part.operands):
        if not isinstance(operand, Operation) or operand.operators[0].symbol not in COMPARISONS:
            continue
        before = part.operators[at - 1].end if at else part.start
        if "(" not in text[before : operand.start]:
            return operand
    return None


def _of_setting(
    findings: Findings, world: World, part: Operation, first: Operation | None
) -> str | None:
    """`setting[@id="cores"]/@value >= 40` for `setting/id="cores" >= 40`, as lshw has them."""
    path = part.operands[0]
    if not isinstance(path, Path) or len(path.steps) < 2 or first is not part.operands[-1]:  # noqa: PLR2004
        return None
    owner, last = path.steps[-2:]
    literal, number = first.operands[0], first.operands[-1]
    if not isinstance(owner.test, NameTest) or not isinstance(last.test, NameTest):
        return None
    known = world.attributes(frozenset(world.named(owner.test)))
    if part.operators[0].symbol != "=" or not {last.test.local, "value"} <= known:
        return None
    if not isinstance(literal, StringLiteral) or not isinstance(number, NumberLiteral):
        return None
    start = findings.text[path.start : owner.end]
    symbol = first.operators[0].symbol
    wanted, bound = findings.source(literal), findings.source(number)
    return f"{start}[@{last.test.local}={wanted}]/@value {symbol} {bound}"


def _of_comparison(findings: Findings, part: Operation) -> bool | None:
    """`count(...) >= 0`; what is a boolean, so 0 or 1, against another number."""
    symbol, right = part.operators[0].symbol, part.operands[1]
    if symbol not in COMPARISONS or not _is_fixed(right) or right.type != "number":
        return None
    left = part.operands[0]
    number = findings.source(right)
    if left.type == "boolean":
        answers = {bool(_compute(f"{value} {symbol} ({number})")) for value in (0, 1)}
        return answers.pop() if len(answers) == 1 else None
    if isinstance(left, Call) and left.name in {"count", "string-length"}:
        bound = float(_compute(f"number({number})"))
        if bound < 0 or (bound == 0 and symbol in {">=", "<"}):
            return symbol in {">=", ">", "!="}
    return None


def _compute(text: str) -> float:
    return etree.XPath(text)(_EMPTY)  # type: ignore[return-value]


def _is_fixed(part: Part) -> bool:
    if isinstance(part, Path | Filter):
        return False
    if isinstance(part, Call):
        if part.name in {"position", "last", "lang", "id"}:
            return False
        if not part.arguments and part.name in _OF_CONTEXT:
            return False
    return all(_is_fixed(child) for child in children(part))


def _is_never_negative(part: SyntaxTree) -> bool:
    if isinstance(part, NumberLiteral):
        return True
    if isinstance(part, Call):
        return part.name in _NEVER_NEGATIVE
    if isinstance(part, Operation) and part.operators[0].symbol in {"+", "*", "div", "mod"}:
        plain = all(operator.symbol != "-" for operator in part.operators)
        return plain and all(_is_never_negative(operand) for operand in part.operands)
    return False


def _and_before_or(findings: Findings, part: Operation) -> None:
    for at, operand in enumerate(part.operands):
        if not isinstance(operand, Operation) or operand.operators[0].symbol != "and":
            continue
        before = part.operators[at - 1].end if at else part.start
        if "(" in findings.text[before : operand.start]:
            continue
        operator = part.operators[max(at - 1, 0)]
        message = "and binds tighter than or: write parentheses around what belongs together"
        findings.add("and_before_or", message, operator)
        return


def positions(findings: Findings, path: Path) -> None:
    """`//node[2]`: the second among its siblings, not of the document."""
    for at, step in enumerate(path.steps[1:], 1):
        if path.steps[at - 1].written != "//" or step.axis != "child":
            continue
        for number, predicate in enumerate(step.predicates):
            if not is_positional(predicate):
                continue
            word = findings.source(step.test)
            findings.add(
                "position_of_siblings",
                f"after // a position counts among siblings: each {word} is the 1st, 2nd ... child "
                f"of its own parent; parentheses count in the document, as in (//{word})[2]",
                predicate,
                replace=(path.start, step.end),
                by=_counted_in_document(findings, path, step, number),
            )


def is_positional(predicate: SyntaxTree) -> bool:
    return predicate.type == "number" or _counts(predicate)


def _counts(part: SyntaxTree) -> bool:
    """Whether position() or last() of the same context is in it."""
    if isinstance(part, Call):
        return part.name in {"position", "last"} or any(map(_counts, part.arguments))
    if isinstance(part, Operation):
        return any(map(_counts, part.operands))
    return isinstance(part, Negation) and _counts(part.operand)


def _counted_in_document(findings: Findings, path: Path, step: Step, number: int) -> str | None:
    """`(//node[@class='x'])[position()=2]`, where the position is last in the step."""
    if number != len(step.predicates) - 1:
        return None
    predicate = step.predicates[-1]
    before = findings.text[path.start : predicate.start].rstrip()
    if not before.endswith("["):
        return None
    before = before[:-1].rstrip()
    if not isinstance(predicate, Operation) or predicate.operators[0].symbol != "and":
        return f"({before})[{findings.source(predicate)}]"
    others = [operand for operand in predicate.operands if not _counts(operand)]
    counted = [operand for operand in predicate.operands if _counts(operand)]
    if predicate.operands[-len(counted) :] != tuple(counted):
        return None
    kept = findings.text[predicate.start : others[-1].end]
    rest = findings.text[counted[0].start : predicate.end]
    if kept.count("(") != kept.count(")") or rest.count("(") != rest.count(")"):
        return None
    return f"({before}[{kept}])[{rest}]"
