"""Random documents and random expressions over the whole grammar that the kernel claims.

Everything is drawn from one ``random.Random``. Hypothesis supplies it, so that a failure shrinks;
a seeded one makes the bulk runs fast.
"""

from __future__ import annotations

import re
from random import Random
from typing import get_args

from tagmill_expressions.syntax import Axis

NAMES = ["a", "b", "node", "id", "x-y"]
PREFIXED = ["p:a", "p:b", "q:a", "q:node"]
NAMESPACES = {"p": "urn:p", "q": "urn:q", "r": "urn:p"}
VALUES = [
    "",
    "a",
    "b",
    "ab",
    "1",
    "2",
    "2.5",
    "-1",
    " 1 ",
    "NaN",
    "10",
    "1e1",
    "é",
    "a b",
    "  a  b ",
]
TEXTS = [*VALUES, "\n  ", "x\ty", "&amp;", "&#65;", "&lt;a&gt;", "<![CDATA[c]]>", "<![CDATA[]]>"]


def document(rng: Random) -> str:
    """A well-formed document, up to some forty nodes."""
    before = _misc(rng)
    declare = rng.random() < 0.5
    root = _element(rng, depth=0, budget=[rng.randrange(1, 40)], prefixes=declare, root=True)
    return f"{before}{root}{_misc(rng)}"


def _misc(rng: Random) -> str:
    return rng.choice(["", "", "", "<!-- c -->", "<?pi d?>", "\n", "<?a?><!--a-->"])


# Whole elements that many documents have in common, as the machines of one model do.
SHARED = [
    "<a/>",
    "<b>1</b>",
    '<node id="a">2</node>',
    '<a><b a="1">ab</b>\n  <node><id>10</id></node></a>',
    "<x-y>\n  <a/>\n  <a>1</a>\n</x-y>",
    '<node xmlns="urn:p"><a>b</a></node>',
]


def _element(
    rng: Random, depth: int, budget: list[int], *, prefixes: bool, root: bool = False
) -> str:
    budget[0] -= 1
    if not root and rng.random() < 0.15:
        return rng.choice(SHARED)
    name = rng.choice(PREFIXED if prefixes and rng.random() < 0.2 else NAMES)
    choices = [*NAMES, "xml:lang", *(["p:a", "q:b"] if prefixes else [])]
    attributes = dict.fromkeys(rng.sample(choices, rng.randrange(4)), "")
    for attribute in attributes:
        value = rng.choice(VALUES) if attribute != "xml:lang" else rng.choice(["en", "en-GB", "de"])
        attributes[attribute] = value
    if root and prefixes:
        attributes |= {"xmlns:p": "urn:p", "xmlns:q": "urn:q"}
    if rng.random() < 0.05:
        attributes["xmlns"] = rng.choice(["", "urn:p", "urn:q"])
    tag = "".join([name, *(f' {key}="{value}"' for key, value in attributes.items())])
    content = []
    while budget[0] > 0 and depth < 6 and rng.random() < 0.75:
        kind = rng.random()
        if kind < 0.55:
            content.append(_element(rng, depth + 1, budget, prefixes=prefixes))
        elif kind < 0.9:
            content.append(rng.choice(TEXTS))
        else:
            content.append(rng.choice(["<!--a-->", "<?pi x?>", "<?a?>"]))
    return f"<{tag}>{''.join(content)}</{name}>" if content else f"<{tag}/>"


def deep(rng: Random) -> str:
    """A document of 100 to 250 levels; libxml2 takes 256."""
    before, after = [], []
    for _ in range(rng.randrange(100, 251)):
        name = rng.choice(NAMES)
        attribute = f' {rng.choice(NAMES)}="{rng.choice(VALUES)}"' if rng.random() < 0.3 else ""
        before.append(f"<{name}{attribute}>{_sibling(rng)}")
        after.append(f"{_sibling(rng)}</{name}>")
    return "".join([*before, rng.choice(TEXTS), *reversed(after)])


def _sibling(rng: Random) -> str:
    return rng.choice([*SHARED, *TEXTS]) if rng.random() < 0.1 else ""


def wide(rng: Random) -> str:
    """A document with 1,000 and more children of one element: most alike, some like no other."""
    parent = rng.choice(NAMES)
    children = []
    for number in range(rng.randrange(1000, 1200)):
        own = f'<{rng.choice(NAMES)} id="{number}">{rng.choice(VALUES)}</'
        children.append(
            own + own[1 : own.index(" ")] + ">" if rng.random() < 0.1 else rng.choice(SHARED)
        )
    content = f"<{parent}>{''.join(children)}</{parent}>"
    return content if rng.random() < 0.5 else f"<a>{rng.choice(TEXTS)}{content}<b/></a>"


# Values of attributes, except declarations of namespaces, and texts.
PLACE = re.compile(r'(?<!xmlns=")(?<==")[^"]*(?=")|(?<=>)[^<>&]*(?=<)')


def fleet(rng: Random, count: int) -> list[str]:
    """Documents of a few structures, with values that hardly any other has, or that some have."""
    models = []
    for _ in range(rng.randrange(1, 5)):
        content = [_element(rng, 0, [rng.randrange(1, 30)], prefixes=False) for _ in range(2)]
        model = f"<list>{rng.choice(TEXTS)}{''.join(content)}</list>"
        places = [place.span() for place in PLACE.finditer(model)]
        chosen = sorted(rng.sample(places, min(len(places), rng.randrange(1, 5))), reverse=True)
        models.append((model, [(place, rng.random()) for place in chosen]))
    return [_machine(rng, number, *rng.choice(models)) for number in range(count)]


def _machine(
    rng: Random, number: int, text: str, places: list[tuple[tuple[int, int], float]]
) -> str:
    for (start, end), rarity in places:
        value = rng.choice([value for value in VALUES if "&" not in value])
        if rng.random() < rarity:
            value = f"{value}{number}"
        text = text[:start] + value + text[end:]
    return text


# The kernel leaves the namespace axis to lxml.
AXES = [axis for axis in get_args(Axis) if axis != "namespace"]
POSITIONS = ["position()", "last()"]
COMPARISONS = ["=", "!=", "<", "<=", ">", ">="]
NUMBERS = ["0", "1", "2", "3", "2.5", ".5", "10", "1 div 0", "0 div 0", "-1", "(-0)", "1e1"]


def expression(rng: Random, depth: int = 3) -> str:
    """An expression of any type."""
    return rng.choice([boolean, boolean, number, string, nodes])(rng, depth)


def boolean(rng: Random, depth: int) -> str:
    if depth <= 0:
        return rng.choice(["true()", "false()", "@a", "a", "node"])
    deeper = depth - 1
    kind = rng.randrange(12)
    if kind < 3:
        return f"{expression(rng, deeper)} {rng.choice(COMPARISONS)} {expression(rng, deeper)}"
    if kind < 5:
        left, right = nodes(rng, deeper), rng.choice([string, number])(rng, 0)
        return f"{left} {rng.choice(COMPARISONS)} {right}"
    if kind < 7:
        return f"{boolean(rng, deeper)} {rng.choice(['and', 'or'])} {boolean(rng, deeper)}"
    if kind == 7:
        return f"not({expression(rng, deeper)})"
    if kind == 8:
        return f"contains({expression(rng, deeper)}, {string(rng, deeper)})"
    if kind == 9:
        return f"starts-with({expression(rng, deeper)}, {string(rng, deeper)})"
    if kind == 10:
        return rng.choice(["lang('en')", "lang('EN-gb')", "lang('d')", "boolean(@a)"])
    return f"({boolean(rng, deeper)})"


def number(rng: Random, depth: int) -> str:
    if depth <= 0:
        return rng.choice(NUMBERS)
    deeper = depth - 1
    kind = rng.randrange(11)
    if kind < 2:
        operator = rng.choice(["+", "-", "*", "div", "mod"])
        return f"({number(rng, deeper)} {operator} {number(rng, deeper)})"
    if kind == 2:
        return f"- {number(rng, deeper)}"
    if kind < 5:
        return f"count({nodes(rng, deeper)})"
    if kind == 5:
        return f"sum({nodes(rng, deeper)})"
    if kind == 6:
        return f"string-length({string(rng, deeper)})"
    if kind == 7:
        return f"number({expression(rng, deeper)})"
    if kind == 8:
        return f"{rng.choice(['floor', 'ceiling', 'round'])}({number(rng, deeper)})"
    return rng.choice(NUMBERS)


def string(rng: Random, depth: int) -> str:
    if depth <= 0:
        return f"'{rng.choice(VALUES)}'"
    deeper = depth - 1
    kind = rng.randrange(11)
    inner = expression(rng, deeper)
    if kind == 0:
        return f"concat({inner}, {string(rng, deeper)})"
    if kind == 1:
        return f"{rng.choice(['substring-before', 'substring-after'])}({inner}, {string(rng, 0)})"
    if kind == 2:
        return f"substring({inner}, {number(rng, deeper)}, {number(rng, 0)})"
    if kind == 3:
        return f"substring({inner}, {number(rng, deeper)})"
    if kind == 4:
        return f"normalize-space({inner})"
    if kind == 5:
        return f"translate({inner}, 'ab1', '{rng.choice(['', 'x', 'xyz'])}')"
    if kind == 6:
        return f"{rng.choice(['name', 'local-name', 'namespace-uri'])}({nodes(rng, deeper)})"
    if kind < 9:
        return f"string({inner})"
    return f"'{rng.choice(VALUES)}'"


def nodes(rng: Random, depth: int) -> str:
    """A node-set: mostly downward paths, as people write them, and everything else too."""
    kind = rng.random()
    if depth > 0 and kind < 0.1:
        return f"({nodes(rng, depth - 1)} | {nodes(rng, depth - 1)})"
    if depth > 0 and kind < 0.2:
        tail = rng.choice(["", "/" + _step(rng, depth - 1), "//" + _step(rng, depth - 1)])
        return f"({nodes(rng, depth - 1)}){_predicate(rng, depth - 1)}{tail}"
    start = rng.choice(["", "/", "//", "//", "//", "./", ".//", "../"])
    steps = [_step(rng, depth) for _ in range(rng.randrange(1, 4))]
    path = steps[0]
    for step in steps[1:]:
        path += rng.choice(["/", "/", "//"]) + step
    return rng.choice(["(/)", ".", ".."]) if kind > 0.98 else start + path


def _step(rng: Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.05:
        return rng.choice([".", ".."])
    predicates = ""
    while depth > 0 and rng.random() < 0.35:
        predicates += _predicate(rng, depth - 1)
    if kind < 0.3:
        return f"{rng.choice(AXES)}::{_test(rng)}{predicates}"
    if kind < 0.45:
        return f"@{rng.choice([*NAMES, '*', 'p:a'])}{predicates}"
    return _test(rng) + predicates


def _test(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.65:
        return rng.choice(NAMES)
    if kind < 0.75:
        return rng.choice(["p:a", "p:b", "r:a", "q:node", "p:*", "q:*"])
    return rng.choice(
        [
            "*",
            "*",
            "node()",
            "text()",
            "text()",
            "comment()",
            "processing-instruction()",
            "processing-instruction('pi')",
        ]
    )


def _predicate(rng: Random, depth: int) -> str:
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice(
            ["[1]", "[2]", "[last()]", "[position() < 3]", "[position() = last()]", "[last() - 1]"]
        )
    if kind < 3:
        return f"[@{rng.choice(NAMES)} = {string(rng, 0)}]"
    if kind == 3:
        return f"[{rng.choice(['contains', 'starts-with'])}(., {string(rng, 0)})]"
    if kind == 4:
        return f"[{number(rng, depth)} {rng.choice(COMPARISONS)} {rng.choice(POSITIONS)}]"
    if kind == 5:
        # What is compared with all of its kind, with what is around it, or with a count.
        own = rng.choice(["", "@"]) + rng.choice(NAMES)
        other = rng.choice(
            [f"//{own}", f"../{own}", f"count(//{own})", f"//ancestor-or-self::*/{own}"]
        )
        return f"[{own} {rng.choice(COMPARISONS)} {other}]"
    return f"[{expression(rng, depth)}]"
