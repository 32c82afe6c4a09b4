"""Warnings about the steps of paths: names that no document has, or has elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tagmill_expressions.documents import MAIN_PROBE
from tagmill_expressions.lint.findings import Findings, listed
from tagmill_expressions.lint.places import DOCUMENT, Place, Places, World, local, namespace
from tagmill_expressions.syntax import NameTest, Operation, Path, Step, SyntaxTree
from tagmill_expressions.vocabulary import State

# Printed by every version of lldpd: known also to a fleet that has it nowhere yet.
_KNOWN_PROBES = frozenset({MAIN_PROBE, "lldp"})
_OPERATORS = frozenset({"not", "and", "or", "div", "mod"})
_BOOLEANS = frozenset({"true", "false"})
_LSHW_NODE: Final = "node"
_FEW = 2


def operator_step(
    findings: Findings, world: World, path: Path, parent: SyntaxTree | None
) -> Step | None:
    """The step that is named like an operator, if there is one, after a warning."""
    for at, step in enumerate(path.steps):
        test = step.test
        if (
            not isinstance(test, NameTest)
            or test.prefix is not None
            or test.local not in _OPERATORS
            or step.written != ""
        ):
            continue
        if world.named(test):
            continue
        by, span = None, (step.start, step.end)
        if test.local == "not" and at == 0 and len(path.steps) > 1 and path.origin is None:
            span = (path.start, path.end)
            if isinstance(parent, Operation) and parent.operands[0] is path:
                span = (parent.start, parent.end) if parent.start == path.start else span
            by = f"not({findings.text[step.end : span[1]].strip()})"
        hint = "write not(...)" if test.local == "not" else "an operator stands between operands"
        findings.add(
            "element_named_operator",
            f"{test.local} is here the name of an element: {hint}",
            step,
            replace=span,
            by=by,
        )
        return step
    return None


def is_undeclared(findings: Findings, world: World, test: NameTest) -> bool:
    """Whether the prefix means nothing, after a warning."""
    prefix = test.prefix
    if not world.known or prefix is None or prefix in _KNOWN_PROBES or prefix == "xml":
        return False
    if world.uri(test) != prefix or prefix in world.namespaces:
        return False
    known = sorted((world.namespaces - {""}) | _KNOWN_PROBES)
    near = findings.near(prefix, known)
    hint = f": did you mean {near[0]}?" if near else f": the probes are {', '.join(known)}"
    findings.add(
        "undeclared_prefix",
        f"the prefix {prefix} is not declared, and no document has a probe of that name{hint}",
        (test.start, test.start + len(prefix)),
    )
    return True


def bare_name(findings: Findings, world: World, part: SyntaxTree, context: Places) -> bool:
    """Whether an operand of a comparison is a word that should be in quotes, after a warning."""
    if not isinstance(part, Path) or part.absolute or part.origin or len(part.steps) != 1:
        return False
    step = part.steps[0]
    test = step.test
    if not isinstance(test, NameTest) or test.prefix or step.predicates or step.written != "":
        return False
    found = world.step(context, step)
    if test.local == "*" or found is None or found or test.local in world.attributes(context):
        return False
    findings.add(
        "bare_name_for_string",
        f"{test.local} without quotes is the name of an element, which no document has there: "
        "text needs quotes",
        part,
        by=f'"{test.local}"' if "'" in findings.text else f"'{test.local}'",
    )
    return True


def missing(
    findings: Findings, world: World, path: Path, at: int, before: Places, *, nested: bool
) -> None:
    """Explains why the step arrives nowhere. `nested`: in a predicate."""
    step = path.steps[at]
    test = step.test
    if not isinstance(test, NameTest) or test.local == "*":
        return
    # `//` is a step of its own: what comes before it is what the author thinks of.
    if step.axis == "attribute":
        _missing_attribute(findings, world, step, test, before)
        return
    name = world.expanded(test)
    alone = at == len(path.steps) - 1 and not step.predicates
    if step.axis == "child" and name in world.attributes(before) and not test.prefix:
        findings.add(
            "element_is_attribute",
            f"{test.local} is an attribute in these documents, no element: write @{test.local}",
            step,
            by=f"@{test.local}" if alone and step.written == "" else None,
        )
        return
    if path.steps == (step,) and not path.absolute and test.local in _BOOLEANS:
        findings.add(
            "unknown_name",
            f"{test.local} is here the name of an element, which no document has: "
            f"write {test.local}()",
            step,
            by=f"{test.local}()",
        )
        return
    if world.named(test):
        _misplaced(findings, world, path, step, test=test, before=before, nested=nested)
        return
    findings.add(
        "unknown_name",
        f"no document has an element {_written(test)}{_near_name(findings, world, test)}",
        step.test,
    )


def _missing_attribute(
    findings: Findings, world: World, step: Step, test: NameTest, before: Places
) -> None:
    world.spend(2 * len(before or ()))
    owners = sorted({local(place.name) for place in before or () if isinstance(place, State)})
    owner = f"no <{'> or <'.join(owners)}>" if 0 < len(owners) <= _FEW else "no element"
    name = world.expanded(test)
    children = {state.name for place in before or () for state in world.children(place)}
    if name in children:
        findings.add(
            "attribute_is_element",
            f"{owner} has an attribute {test.local}: it is an element, write {test.local}",
            step,
            replace=(step.start, step.test.end),
            by=test.local if step.written == "@" else None,
        )
        return
    here = sorted(world.attributes(before))
    near = findings.near(test.local, map(local, here))
    hint = f": did you mean {near[0]}?" if near else ""
    if not near and here:
        hint = f": there are {listed([local(name) for name in here])}"
    findings.add("unknown_attribute", f"{owner} has an attribute {test.local} there{hint}", step)


def _misplaced(
    findings: Findings,
    world: World,
    path: Path,
    step: Step,
    *,
    test: NameTest,
    before: Places,
    nested: bool,
) -> None:
    """The name exists, and not where the step looks."""
    at = path.steps.index(step)
    name = world.expanded(test)
    starts = before or frozenset()
    around = _names(starts)
    where = f"no <{test.local}> is "
    where += "below" if step.axis != "child" else "directly below"
    where += f" <{listed(around, 3)}>" if around else " there"
    deeper = any(isinstance(p, State) and p.name == name for p in world.below(starts))
    by, span = None, (step.start, step.start)
    if deeper and step.written == "" and (at == 0 or path.steps[at - 1].written != "//"):
        where += ", only deeper: write //"
        if at or path.absolute or path.origin is not None:
            by = "/" if findings.text[: step.start].endswith("/") else None
        else:
            by = ".//" if nested else "//"
    else:
        world.spend(sum(len(e.children) for e in world.vocabulary.elements.values()))
        parents = sorted(
            {
                local(state.name)
                for state, element in world.vocabulary.elements.items()
                if any(child.name == name for child in element.children)
            }
        )
        if parents:
            where += f": it is in <{listed(parents, 3)}>"
    findings.add("unknown_name", where, step.test, replace=span, by=by)


def _near_name(findings: Findings, world: World, test: NameTest) -> str:
    states = world.vocabulary.elements
    world.spend(4 * len(states))
    same = sorted({namespace(s.name) for s in states if local(s.name) == test.local})
    if same:
        probe = same[0] or MAIN_PROBE
        return f": the probe {probe} has one, write {same[0] + ':' if same[0] else ''}{test.local}"
    space = world.uri(test)
    if space and space not in world.namespaces:
        return f": none has anything of {test.prefix}"
    ids = [
        state.name
        for state in states
        if state.name == _LSHW_NODE
        and "id" in states[state].attributes
        and test.local in (states[state].attributes["id"].kept or ())
    ]
    if ids and not test.prefix:
        return f": it is the id of a node, write node[@id='{test.local}']"
    names = {local(state.name) for state in states if namespace(state.name) == space}
    near = findings.near(test.local, names)
    return f": did you mean {near[0]}?" if near else ""


def _written(test: NameTest) -> str:
    return test.local if test.prefix is None else f"{test.prefix}:{test.local}"


def _names(places: Iterable[Place]) -> list[str]:
    return sorted(
        {
            local(place.name) if isinstance(place, State) else "the document"
            for place in places
            if isinstance(place, State) or place == DOCUMENT
        }
    )
