"""The nodes that lxml returns, for people: path, line, text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lxml import etree

from tagmill_expressions.explain.model import Hit
from tagmill_expressions.lexer import NCNAME

MAX_HITS = 20
MAX_TEXT = 200
MAX_PATH = 2_000
"""A name may have 50,000 characters, and elements nest a hundred deep."""


def hits(found: Iterable[Any], prefixes: Mapping[str, str]) -> tuple[Hit, ...]:
    """The first MAX_HITS. The document itself, which lxml leaves out, is none of them."""
    by_uri = {uri: prefix for prefix, uri in prefixes.items()}
    first: list[Hit] = []
    for node in found:
        if len(first) == MAX_HITS:
            break
        first.append(_hit(node, by_uri))
    return tuple(first)


def _hit(node: Any, prefixes: Mapping[str, str]) -> Hit:
    if isinstance(node, etree._Element):
        text = shortened(own_text(node))
        return Hit(path_of(node, prefixes), _line(node), text, about(node))
    if isinstance(node, tuple):  # of the namespace axis: prefix and URI
        return Hit(f"namespace::{node[0] or '*'}", None, shortened(node[1] or ""))
    owner = node.getparent()
    if owner is None:
        return Hit("text()", None, shortened(str(node)))
    if node.is_attribute:
        path = f"{path_of(owner, prefixes)}/@{shortened(_qualified(node.attrname, prefixes))}"
        return Hit(path, _line(owner), shortened(str(node)))
    if node.is_tail:
        # lxml gives the text after an element to that element.
        above = owner.getparent()
        owner = owner if above is None else above
    return Hit(f"{path_of(owner, prefixes)}/text()", _line(owner), shortened(str(node)))


def _line(node: Any) -> int | None:
    line: int | None = node.sourceline
    return line


def path_of(node: etree._Element, prefixes: Mapping[str, str]) -> str:
    steps: list[str] = []
    at: etree._Element | None = node
    while at is not None:
        above = at.getparent()
        steps.append(_step(at, above, prefixes))
        at = above
    path = "/" + "/".join(reversed(steps))
    return path if len(path) <= MAX_PATH else f"…{path[1 - MAX_PATH :]}"


def _step(node: etree._Element, above: etree._Element | None, prefixes: Mapping[str, str]) -> str:
    same: Any = node.tag
    if isinstance(node, etree._Comment):
        name = "comment()"
    elif isinstance(node, etree._ProcessingInstruction):
        name = "processing-instruction()"
    else:
        name = _qualified(str(node.tag), prefixes)
    if above is None:
        return name
    if name == "*":
        same = "*"
    position, count = 0, 0
    for sibling in above.iterchildren(same):
        count += 1
        if sibling is node:
            position = count
        if count > 1 and position:
            break
    return name if count == 1 else f"{name}[{position}]"


def _qualified(name: str, prefixes: Mapping[str, str]) -> str:
    """The name with the definition's prefix, or the probe's name; `*` where there is none."""
    if not name.startswith("{"):
        return name
    uri, _, local = name[1:].partition("}")
    prefix = prefixes.get(uri) or (uri if NCNAME.fullmatch(uri) else None)
    if uri == "http://www.w3.org/XML/1998/namespace":
        prefix = "xml"
    return "*" if prefix is None else f"{prefix}:{local}"


def about(node: etree._Element) -> str:
    """An element's `id`, `class` and `product`, as far as it has them, as attribute or element."""
    known = [(name, node.get(name)) for name in ("id", "class")]
    known.append(("product", node.findtext("product")))
    found = (f"{name}={' '.join(value.split())}" for name, value in known if value)
    return shortened(" ".join(found))


def own_text(node: etree._Element) -> str:
    """The text of an element with elements in it is where its own children are: left out."""
    return " ".join((node.text or "").split())


def shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
