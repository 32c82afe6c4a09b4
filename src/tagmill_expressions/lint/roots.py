"""Warnings about definitions that mean another thing, or nothing, with another root.

lshw prints `<list>` around the machine's `<node>`, older versions the `<node>` alone. Where a fleet
has both, a path from one of them misses half of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tagmill_expressions.lint.findings import Findings, listed
from tagmill_expressions.lint.forms import is_positional
from tagmill_expressions.lint.places import DOCUMENT, World, local
from tagmill_expressions.syntax import NameTest, Operation, Part, Path, Step, SyntaxTree, children
from tagmill_expressions.vocabulary import State

# With fewer documents, that all of them have something says little.
MANY = 20
_LSHW_ROOTS = frozenset({"list", "node"})
_BOTH = "(/list/node | /node)"


def named_roots(whole: Part) -> frozenset[str]:
    """The names that absolute paths begin with."""
    return frozenset(_named_roots(whole))


def _named_roots(part: Part) -> Iterator[str]:
    if isinstance(part, Path) and part.absolute and part.steps:
        test = part.steps[0].test
        if part.steps[0].axis == "child" and isinstance(test, NameTest):
            yield test.local
    for child in children(part):
        yield from _named_roots(child)


def depends(
    findings: Findings, world: World, path: Path, mentioned: frozenset[str], *, top: bool
) -> bool:
    """Whether the path begins at one root of several, after a warning.

    `mentioned` are the roots that the definition names anywhere; `top`: the context is the root.
    """
    if len(world.vocabulary.roots) < 2 or not path.steps:  # noqa: PLR2004
        return False
    if path.absolute:
        return _absolute(findings, world, path, mentioned)
    return path.origin is None and top and _relative(findings, world, path)


def _absolute(findings: Findings, world: World, path: Path, mentioned: frozenset[str]) -> bool:
    first = path.steps[0]
    test = first.test
    if first.axis != "child" or not isinstance(test, NameTest) or test.local == "*":
        return False
    reached = world.step(frozenset([DOCUMENT]), first)
    others = {local(state.name) for state in world.vocabulary.roots if state not in (reached or ())}
    if not reached or not others or others <= mentioned:
        return False
    share = sum(world.vocabulary.roots[s] for s in reached if isinstance(s, State))
    message = (
        f"only {share:,} of {world.vocabulary.documents:,} documents have the root "
        f"<{test.local}>, the others have <{listed(sorted(others))}>"
    )
    end, by = _from_both(world, path)
    findings.add("root_dependent", message, first.test, replace=(path.start, end), by=by)
    return True


def _from_both(world: World, path: Path) -> tuple[int, str | None]:
    """The end of what is replaced, and the path of the machine's node under either root."""
    if {state.name for state in world.vocabulary.roots} != _LSHW_ROOTS:
        return path.end, None
    first, rest = path.steps[0], path.steps[1:]
    step = first
    if _is_plain(first, "list"):
        if rest and rest[0].written == "//" and not first.predicates:
            return rest[0].start, ""
        if not rest or not _is_plain(rest[0], "node") or first.predicates:
            return path.end, None
        step = rest[0]
    elif not _is_plain(first, "node"):
        return path.end, None
    if any(is_positional(predicate) for predicate in step.predicates):
        return path.end, None
    return step.test.end, _BOTH


def _is_plain(step: Step, name: str) -> bool:
    test = step.test
    return step.written == "" and isinstance(test, NameTest) and test.local == name


def _relative(findings: Findings, world: World, path: Path) -> bool:
    first = path.steps[0]
    if first.axis not in {"child", "attribute"} or not isinstance(first.test, NameTest):
        return False
    reached = {
        local(root.name): world.step(frozenset([root]), first) for root in world.vocabulary.roots
    }
    if len(set(reached.values())) == 1:
        return False
    without = sorted(name for name, places in reached.items() if not places)
    what = findings.source(first.test)
    if first.axis == "attribute":
        what = f"@{what}"
    message = f"a path begins at the root element, and {what} there is " + (
        f"nothing where that is <{listed(without)}>"
        if without
        else f"another thing for each root ({', '.join(sorted(reached))})"
    )
    by = "//" if first.axis == "child" and first.written == "" else None
    findings.add("root_dependent", message, first, replace=(path.start, path.start), by=by)
    return True


def everything(findings: Findings, world: World, whole: SyntaxTree) -> None:
    """`//name` and `//name[@a='v']` where every document has one."""
    known = world.vocabulary
    if known.documents < MANY or not isinstance(whole, Path):
        return
    if len(whole.steps) != 2 or whole.steps[0].written != "//" or whole.origin is not None:  # noqa: PLR2004
        return
    step = whole.steps[1]
    if step.axis != "child" or not isinstance(step.test, NameTest) or step.test.local == "*":
        return
    attribute, value = None, ""
    if step.predicates:
        compared = _attribute_is(step.predicates[0])
        if compared is None or len(step.predicates) > 1:
            return
        attribute, value = compared
    most = 0
    for state in known.named(world.expanded(step.test)):
        element = known.elements[state]
        if attribute is None:
            most = max(most, element.documents)
        elif attribute in element.attributes:
            most = max(most, (element.attributes[attribute].kept or {}).get(value, 0))
    if most == known.documents:
        message = f"each of the {most:,} documents has one today: the tag would be on every node"
        findings.add("matches_every_node", message, whole)


def _attribute_is(predicate: SyntaxTree) -> tuple[str, str] | None:
    if not isinstance(predicate, Operation) or len(predicate.operators) != 1:
        return None
    left, right = predicate.operands
    value = getattr(right, "value", None)
    if predicate.operators[0].symbol != "=" or not isinstance(value, str):
        return None
    if not isinstance(left, Path) or left.absolute or left.origin or len(left.steps) != 1:
        return None
    step = left.steps[0]
    if step.axis != "attribute" or step.predicates or not isinstance(step.test, NameTest):
        return None
    return (step.test.local, value) if step.test.prefix is None else None
