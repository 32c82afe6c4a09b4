"""Definitions drawn at random over the whole grammar, with the vocabulary of hardware."""

# The numbers that `kind` is compared with are the weights of productions.
# ruff: noqa: PLR2004

from __future__ import annotations

from random import Random
from typing import get_args

from tagmill_expressions.syntax import Axis

# The kernel leaves the namespace axis to lxml.
AXES = tuple(axis for axis in get_args(Axis) if axis != "namespace")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
NAMES = (
    *("node", "node", "node", "size", "capacity", "vendor", "product", "description", "setting"),
    *("capability", "capabilities", "configuration", "serial", "version", "lldp:chassis", "*", "*"),
)
ATTRIBUTES = ("id", "id", "class", "class", "units", "value", "handle", "*")
STRINGS = ("disk", "network", "bytes", "cores", "core", "Intel Corp.", "HP", "x", "1", "")
NUMBERS = ("0", "1", "2", "3", "64", "1000000000")


def drawn(seed: int, count: int) -> list[str]:
    """As many combinations as asked for, different from each other."""
    rng = Random(seed)  # noqa: S311 - reproducible
    found: dict[str, None] = {}
    while len(found) < count:
        found[boolean(rng, depth=3)] = None
    return list(found)


def boolean(rng: Random, depth: int) -> str:
    """A definition: mostly paths with predicates, and every operator and function around them."""
    if depth <= 0:
        return nodes(rng, 0)
    kind, deeper = rng.random(), depth - 1
    if kind < 0.25:
        return nodes(rng, depth)
    if kind < 0.45:
        return f"{nodes(rng, depth)} {rng.choice(COMPARISONS)} {_operand(rng, deeper)}"
    if kind < 0.55:
        return f"{number(rng, depth)} {rng.choice(COMPARISONS)} {number(rng, deeper)}"
    if kind < 0.65:
        return f"{string(rng, depth)} {rng.choice(('=', '!='))} {string(rng, deeper)}"
    if kind < 0.72:
        return f"not({boolean(rng, deeper)})"
    if kind < 0.82:
        function = rng.choice(("contains", "starts-with"))
        return f"{function}({string(rng, deeper)}, {string(rng, 0)})"
    if kind < 0.84:
        return "lang('en')"
    return f"({boolean(rng, deeper)} {rng.choice(('and', 'or'))} {boolean(rng, deeper)})"


def _operand(rng: Random, depth: int) -> str:
    return rng.choice((nodes, number, string, string, number))(rng, depth)


def number(rng: Random, depth: int) -> str:
    kind, deeper = rng.random(), depth - 1
    if depth <= 0 or kind < 0.15:
        return rng.choice(NUMBERS)
    if kind < 0.5:
        return f"count({nodes(rng, depth)})"
    if kind < 0.65:
        return f"sum({nodes(rng, depth)})"
    if kind < 0.75:
        return f"string-length({string(rng, deeper)})"
    if kind < 0.85:
        operator = rng.choice(("+", "-", "*", "div", "mod"))
        return f"({number(rng, deeper)} {operator} {number(rng, deeper)})"
    if kind < 0.95:
        return f"{rng.choice(('number', 'floor', 'ceiling', 'round'))}({nodes(rng, deeper)})"
    return f"- {number(rng, deeper)}"


def string(rng: Random, depth: int) -> str:
    kind, deeper = rng.random(), depth - 1
    if depth <= 0 or kind < 0.2:
        return f"'{rng.choice(STRINGS)}'"
    inner = nodes(rng, deeper)
    if kind < 0.5:
        return f"{rng.choice(('string', 'normalize-space'))}({inner})"
    if kind < 0.65:
        return f"{rng.choice(('name', 'local-name', 'namespace-uri'))}({inner})"
    if kind < 0.75:
        return f"concat({inner}, {string(rng, deeper)})"
    if kind < 0.85:
        return f"{rng.choice(('substring-before', 'substring-after'))}({inner}, ' ')"
    if kind < 0.92:
        return f"substring({inner}, 2, {number(rng, deeper)})"
    return f"translate({inner}, 'abc ', 'AB')"


def nodes(rng: Random, depth: int, *, relative: bool = False) -> str:
    kind = rng.random()
    if depth > 0 and kind < 0.1:
        return f"({nodes(rng, depth - 1)} | {nodes(rng, depth - 1)})"
    if depth > 0 and kind < 0.17:
        tail = rng.choice(("", "/" + _step(rng, depth - 1)))
        return f"({nodes(rng, depth - 1)}){_predicate(rng, depth - 1)}{tail}"
    start = rng.choice(("", "", "./", ".//", "../", "//")) if relative else "//"
    path = start + _step(rng, depth)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        path += rng.choice(("/", "/", "/", "//")) + _step(rng, depth)
    return path


def _step(rng: Random, depth: int) -> str:
    kind, predicates = rng.random(), ""
    while depth > 0 and rng.random() < 0.4:
        predicates += _predicate(rng, depth - 1)
    if kind < 0.05:
        return ".."
    if kind < 0.25:
        axis = rng.choice(AXES)
        return f"{axis}::{rng.choice(ATTRIBUTES if axis == 'attribute' else NAMES)}{predicates}"
    if kind < 0.4:
        return f"@{rng.choice(ATTRIBUTES)}{predicates}"
    if kind < 0.45:
        return rng.choice(("text()", "node()", "comment()")) + predicates
    return rng.choice(NAMES) + predicates


def _predicate(rng: Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.15:
        position = ("1", "2", "last()", "position() < 3", "last() - 1", "position() mod 2 = 1")
        return f"[{rng.choice(position)}]"
    if kind < 0.5:
        return f"[@{rng.choice(ATTRIBUTES)} {rng.choice(('=', '!='))} '{rng.choice(STRINGS)}']"
    if kind < 0.6:
        return f"[contains({nodes(rng, depth, relative=True)}, '{rng.choice(STRINGS)}')]"
    if kind < 0.7:
        count = f"count({nodes(rng, depth, relative=True)})"
        return f"[{count} {rng.choice(COMPARISONS)} {rng.choice((*NUMBERS, 'position()'))}]"
    if kind < 0.85:
        operand = _operand(rng, depth)
        return f"[{nodes(rng, depth, relative=True)} {rng.choice(COMPARISONS)} {operand}]"
    return f"[{nodes(rng, depth, relative=True)}]"
