"""Why a path found nothing: how far it got, and what is there instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from lxml import etree

from tagmill_expressions.explain.evaluator import PartEvaluator
from tagmill_expressions.explain.model import Missing
from tagmill_expressions.explain.nodes import shortened
from tagmill_expressions.syntax import (
    Call,
    Filter,
    NameTest,
    Operation,
    Part,
    Path,
    Step,
    StringLiteral,
    SyntaxTree,
    children,
)

MAX_INSTEAD = 10
# How many nodes that the longest beginning found are looked at for names and values.
_MAX_LOOKED_AT = 1_000


@dataclass(frozen=True)
class _Cut:
    """A path without its end. What failed is a predicate or a whole step."""

    text: str
    """The shortened path as libxml2 takes it."""
    shown: str
    """The shortened path as it is written in the definition."""
    failed: SyntaxTree | Step
    total: int = 0


def missing(evaluator: PartEvaluator, part: SyntaxTree) -> Missing | None:
    """Why a path, or a filter, found nothing; None for anything else."""
    if isinstance(part, Filter):
        return _of_filter(evaluator, part)
    if not isinstance(part, Path):
        return None
    if part.origin is not None and not evaluator.count(evaluator.printer.expression(part.origin)):
        return missing(evaluator, part.origin)
    return _described(evaluator, part, _longest(evaluator, part))


def _of_filter(evaluator: PartEvaluator, part: Filter) -> Missing | None:
    text = f"({evaluator.printer.expression(part.operand)})"
    if not evaluator.count(text):
        return missing(evaluator, part.operand)
    found: _Cut | None = None
    for number, predicate in enumerate(part.predicates):
        total = evaluator.count(text)
        if not total:
            break
        found = _Cut(text, _shown(evaluator, part, part, number), predicate, total)
        text += f"[{evaluator.printer.expression(predicate)}]"
    return None if found is None else _described(evaluator, part, found)


def _longest(evaluator: PartEvaluator, path: Path) -> _Cut:
    """The longest beginning that finds something, by bisection: so does every shorter one."""
    ends = list(_ends(path))
    # Without any step, it is the context, or the document, or what the origin found.
    found = _cut(evaluator, path, *ends[0])
    found = replace(found, total=evaluator.count(found.text))
    low, high = 0, len(ends)
    while high - low > 1:
        middle = (low + high) // 2
        cut = _cut(evaluator, path, *ends[middle])
        total = evaluator.count(cut.text)
        if total:
            low, found = middle, replace(cut, total=total)
        else:
            high = middle
    return found


def _ends(path: Path) -> Iterator[tuple[int, int | None]]:
    """The step that is the first to miss, or whose predicate is, from the first one on."""
    for at, step in enumerate(path.steps):
        if step.written != "//":
            yield at, None
            yield from ((at, number) for number in range(len(step.predicates)))


def _cut(evaluator: PartEvaluator, path: Path, at: int, number: int | None) -> _Cut:
    step, before = path.steps[at], path.steps[:at]
    if number is not None:
        kept = replace(step, predicates=step.predicates[:number])
        text = evaluator.printer.path(path, (*before, kept))
        return _Cut(text, _shown(evaluator, path, step, number), step.predicates[number])
    if before and before[-1].written == "//":
        before = before[:-1]
    if before:
        shown = evaluator.checked.text[path.start : before[-1].end]
    elif path.origin is not None:
        shown = evaluator.source(path.origin)
    else:
        shown = "/" if path.absolute else ""
    return _Cut(evaluator.printer.path(path, before), shown, step)


def _shown(evaluator: PartEvaluator, whole: SyntaxTree, part: Filter | Step, number: int) -> str:
    """The text from the beginning to before the predicate of this number."""
    text = evaluator.checked.text
    start = part.predicates[number].start
    # Between the brackets and the predicate are at most parentheses and blanks.
    return text[whole.start : start].rstrip("( \t\r\n")[:-1].rstrip()


def _described(evaluator: PartEvaluator, part: SyntaxTree, cut: _Cut) -> Missing:
    whole = evaluator.source(part)
    failed = evaluator.checked.text[cut.failed.start : cut.failed.end]
    if isinstance(cut.failed, Step):
        what, instead = _of_step(evaluator, part, cut, cut.failed)
    else:
        what, instead = _of_condition(evaluator, cut, cut.failed)
    sentence = f"{whole} matched 0"
    if what:
        sentence += f"; {what}"
        if instead:
            sentence += f": {', '.join(instead)}"
    return Missing(
        sentence=sentence,
        longest=cut.shown,
        total=cut.total,
        failed=failed,
        column=cut.failed.start + 1,
        instead=instead,
    )


def _of_step(
    evaluator: PartEvaluator, part: SyntaxTree, cut: _Cut, step: Step
) -> tuple[str, tuple[str, ...]]:
    """The names of what the step could have been."""
    begin, shown = cut.text, cut.shown or "the root element"
    if step.axis == "attribute":
        names = _names(evaluator, f"({begin})/@*", _attribute)
        return (f"attributes of {shown}" if names else f"{shown} has no attributes"), names
    if step.axis != "child" or not isinstance(step.test, NameTest):
        return f"{shown} matched {cut.total}", ()
    local = step.test.local
    if f"@{local}" in _names(evaluator, f"({begin})/@{local}", _attribute):
        return f"{local} is an attribute of {shown}: write @{local}", ()
    if step.test.prefix and not evaluator.count(f"//{evaluator.printer.wildcard(step.test)}"):
        return f"this document has no elements of {step.test.prefix}", ()
    steps = part.steps if isinstance(part, Path) else ()
    at = steps.index(step) if step in steps else 0
    if at and steps[at - 1].written == "//":
        names = _names(evaluator, f"({begin})//*", _element, local)
        near = tuple(difflib.get_close_matches(local, names, n=MAX_INSTEAD))
        if near:
            return f"no {local} is below {shown}, but", near
        return f"no {local} is below {shown}; names that exist there", names
    if begin == "/":
        names = _names(evaluator, "/*", _element)
        return "the root is", names
    names = _names(evaluator, f"({begin})/*", _element)
    return (f"elements in {shown}" if names else f"{shown} has no elements in it"), names


def _of_condition(
    evaluator: PartEvaluator, cut: _Cut, condition: SyntaxTree
) -> tuple[str, tuple[str, ...]]:
    """The values of the path that the condition compares, or searches."""
    parts = list(_conjuncts(evaluator, cut, condition))
    if not parts:
        return f"{cut.shown} matched {cut.total}, each of which fails another part", ()
    for part in parts:
        subject = _subject(part)
        if subject is None:
            continue
        text = f"({cut.text})/{evaluator.printer.expression(subject)}"
        if subject.steps and subject.steps[0].written == "//":
            continue
        values = _names(evaluator, text, _value, _literal(part))
        name = _named(evaluator, subject)
        if not values:
            return f"{cut.shown} matched {cut.total}, {_none_has(evaluator, cut, subject)}", ()
        return f"{name} that exist here", values
    return f"{cut.shown} matched {cut.total} without this condition", ()


def _conjuncts(evaluator: PartEvaluator, cut: _Cut, condition: SyntaxTree) -> Iterator[SyntaxTree]:
    """The parts of an `and` that no node meets; or the condition itself."""
    if not isinstance(condition, Operation) or condition.operators[0].symbol != "and":
        yield from _alternatives(condition)
        return
    for operand in condition.operands:
        if operand.type == "number":
            continue
        if not evaluator.count(f"{cut.text}[{evaluator.printer.expression(operand)}]"):
            yield from _alternatives(operand)


def _alternatives(condition: SyntaxTree) -> Iterator[SyntaxTree]:
    if isinstance(condition, Operation) and condition.operators[0].symbol == "or":
        yield from condition.operands
    else:
        yield condition


def _subject(part: SyntaxTree) -> Path | None:
    """The relative path whose values decide."""
    if isinstance(part, Call) and part.arguments and part.name != "not":
        return _subject(part.arguments[0])
    if isinstance(part, Operation):
        found = (_subject(o) for o in part.operands if not isinstance(o, StringLiteral))
        return next((path for path in found if path is not None), None)
    if isinstance(part, Path) and not part.absolute and part.origin is None:
        return part
    return None


def _none_has(evaluator: PartEvaluator, cut: _Cut, subject: Path) -> str:
    name = evaluator.source(subject)
    text = f"none of which has {name}"
    last = subject.steps[0]
    if len(subject.steps) > 1 or not isinstance(last.test, NameTest) or last.test.local == "*":
        return text
    bare = last.test.local
    other = bare if last.axis == "attribute" else f"@{bare}"
    if not last.test.prefix and evaluator.count(f"({cut.text})/{other}"):
        text += f": write {other}"
    return text


def _named(evaluator: PartEvaluator, subject: Path) -> str:
    """`ids` for `@id`, `texts` for `.`."""
    last = subject.steps[-1]
    if len(subject.steps) == 1 and isinstance(last.test, NameTest) and not last.predicates:
        if last.axis == "attribute":
            return f"{last.test.local}{'es' if last.test.local.endswith('s') else 's'}"
        return f"values of {last.test.local}"
    if last.written == ".":
        return "texts"
    return f"values of {evaluator.source(subject)}"


def _literal(part: SyntaxTree) -> str:
    """The text that is looked for."""
    if isinstance(part, StringLiteral):
        return part.value
    return next(filter(None, (_literal(p) for p in children(part) if _is_value(p))), "")


def _is_value(part: Part) -> TypeGuard[SyntaxTree]:
    return isinstance(part, StringLiteral | Call)


def _names(
    evaluator: PartEvaluator, text: str, name: Callable[[Any], str], wanted: str = ""
) -> tuple[str, ...]:
    """Different ones, at most MAX_INSTEAD: those that begin as wanted, or the most alike first."""
    found = evaluator.evaluate(text)
    names = {name(node) for node in found[:_MAX_LOOKED_AT] if not isinstance(node, tuple)}
    names -= {""}
    begin = sorted(name for name in names if wanted and name.startswith(wanted))
    if begin:
        return tuple(begin[:MAX_INSTEAD])
    near = difflib.get_close_matches(wanted, sorted(names), n=MAX_INSTEAD, cutoff=0.5)
    return tuple((near + sorted(names - set(near)))[:MAX_INSTEAD])


def _value(node: Any) -> str:
    if isinstance(node, etree._Element):
        node = "".join(str(text) for text in node.itertext())
    return shortened(" ".join(str(node).split()))


def _element(node: Any) -> str:
    return _short(node.tag)


def _attribute(node: Any) -> str:
    return f"@{_short(node.attrname)}"


def _short(name: Any) -> str:
    return shortened(str(name).rpartition("}")[2])
