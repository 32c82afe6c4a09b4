"""Documents of the greatest size allowed, made to cost as much as they can."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

from tagmill_expressions.documents import count_nodes

Piece = str | Callable[[int], str]
Case = tuple[str, Piece | list[Piece], str]

_PREFIXES = " ".join(f'xmlns:p{i}="u{i}"' for i in range(50_000))
_CASES: dict[str, Case] = {
    "elements": ("<a>", "<b/>", "</a>"),
    "elements and texts": ("<a>", "<b/>x", "</a>"),
    "names": ("<a>", lambda i: f"<b{i}/>", "</a>"),
    "attributes": ("<a", lambda i: f' b{i}=""', "/>"),
    "attributes and texts": ("<a>", '<b a="x" c="x"/>x', "</a>"),
    "one attribute again": ("<a", ' b=""', "/>"),
    "declarations": ("<a", lambda i: f' xmlns:b{i}="u{i}"', "/>"),
    "a declaration each": ("<a>", lambda i: f'<p:b xmlns:p="u{i}"/>', "</a>"),
    "declarations and attributes": (f"<a {_PREFIXES}", lambda i: f' p{i % 50_000}:c{i}=""', "/>"),
    "the first declaration": (f"<a {_PREFIXES}>", "<p0:b/>", "</a>"),
    "the last declaration": (f"<a {_PREFIXES}>", "<p49999:b/>", "</a>"),
    "undeclared": (f"<a {_PREFIXES}>", "<z:b/>", "</a>"),
    "undeclared attributes": ("<a", lambda i: f' z:a{i}=""', "/>"),
    "bad URIs": ("<a>", '<b xmlns="a b"/>', "</a>"),
    "xml:id": ("<a>", lambda i: f'<b xml:id="a{i}"/>', "</a>"),
    "xml:id again": ("<a>", '<b xml:id="a"/>', "</a>"),
    "comments": ("<a>", "<!---->", "</a>"),
    "comments before": ("", "<!---->", "<a/>"),
    "instructions before": ("", "<?a?>", "<a/>"),
    "comments that do not end": ("", "<!--", ""),
    "text": ("<a>", "x", "</a>"),
    "references": ("<a>", "&amp;", "</a>"),
    "references in an attribute": ('<a b="', "&#9;", '"/>'),
    "entities": ("<a>", "&foo;", "</a>"),
    "sections": ("<a>", "<![CDATA[x]]>", "</a>"),
    "returns": ("<a>", "\r", "</a>"),
    "a long name": ("<", "a", "/>"),
    "deep": ("", "<a>", ""),
    "deep, again and again": ("<r>", "<a>" * 120 + "</a>" * 120, "</r>"),
    "four bytes a character": ("<a>\U0001f600", "<b/>x", "</a>"),
    "a long declaration": ('<?xml version="1.0"', " ", "?><a/>"),
    "lines before": ("<?xml version='1.0'?>", "\n", "<a/>"),
    "a DOCTYPE": ("<!DOCTYPE a [", lambda i: f'<!ENTITY e{i} "x">', "]><a/>"),
    "a long DOCTYPE": ('<!DOCTYPE a SYSTEM "', "x", '"><a/>'),
    "spaces in a DOCTYPE": ("<!DOCTYPE a", " ", ">"),
    "a mistake each": ("<a>", "<b></c>", "</a>"),
    "markup": ("", "<", ""),
}
# As many of them as there may be stand well-formed in an element, in any order.
_WHOLE: list[Piece] = [
    *["<b/>", "<b>x</b>", "x", " ", "\n", "&lt;", "&#x41;", "<!--x-->", "<?p d?>", "<![CDATA[]]>"],
    *['<b a="1"/>', "<b a='&lt;'/>", '<b xml:lang="en"/>', '<b xmlns="u"/>', "é", "\U0001f600"],
    *["\r", "=", "<b><c><d/></c></b>"],
    lambda i: f"<b{i}/>",
    lambda i: f'<b a{i}=""/>',
    lambda i: f'<b xmlns:q{i}="u{i}" q{i}:a=""/>',
    lambda i: f'<b xml:id="i{i}"/>',
]
_PREFIXED: list[Piece] = ["<p0:b/>", '<b p0:a=""/>', "<p49999:b/>", lambda i: f"<p{i % 50_000}:b/>"]
_PIECES = [*_WHOLE, *_PREFIXED, "<b>", "</b>", "<q:b/>", "]]>", "<!DOCTYPE a>"]
_DECLARATION = "<?xml version='1.0'?>\n"
_ENCODINGS = ["utf-8"] * 6 + ["utf-16", "utf-16-be", "utf-32"]


def named(size: int, nodes: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """A document of as many pieces as the limit of nodes allows, and of nothing but pieces."""
    for name, case in _CASES.items():
        if isinstance(case[1], str):
            yield name, lambda case=case: _named(case, size)  # type: ignore[misc]
        yield f"{name}, as many as allowed", lambda case=case: _fewer(case, size, nodes)  # type: ignore[misc]


def drawn(rng: Random, size: int, nodes: int) -> bytes:
    """Most are well-formed, with as many nodes as are allowed."""
    is_whole = rng.random() < 0.8
    encoding = rng.choice(_ENCODINGS)
    width = {"utf-8": 1, "utf-16": 2, "utf-16-be": 2, "utf-32": 4}[encoding]
    # In more bytes a character the declarations alone are too long; and without a sign of the order
    # of bytes it is not read.
    is_whole = is_whole and encoding != "utf-16-be"
    frames = [("<a>", "</a>"), (f"<a {_PREFIXES}>", "</a>"), ("", "<a/>"), ("<a/>", "")]
    beginning, end = rng.choice((frames[:2] if width == 1 else frames[:1]) if is_whole else frames)
    choice = _PIECES
    if is_whole:
        choice = _WHOLE if beginning == "<a>" else [*_WHOLE, *_PREFIXED]
    pieces = [rng.choice(choice) for _ in range(rng.randrange(1, 5))]
    declaration = _DECLARATION if rng.random() < 0.2 else ""
    # The sign of the order of bytes, and what a character outside of the plane takes twice.
    room = size // width - len(declaration) - 1
    make = _fewer if is_whole or rng.random() < 0.7 else _named
    text = make((beginning, pieces, end), room, nodes - 2).decode()
    return (declaration + text).encode(encoding)[:size]


def _named(case: Case, size: int, nodes: int = 0) -> bytes:
    beginning, pieces, end = case
    found, length, number = [beginning.encode()], len(beginning.encode()) + len(end), 0
    if isinstance(pieces, str):
        piece = pieces.encode()
        return b"".join([*found, piece * ((size - length) // len(piece)), end.encode()])
    several = pieces if isinstance(pieces, list) else [pieces]
    while True:
        for one in several:
            made = (one if isinstance(one, str) else one(number)).encode()
            length += len(made)
            if length > size:
                return b"".join([*found, end.encode()])
            found.append(made)
            number += 1


def _fewer(case: Case, size: int, nodes: int) -> bytes:
    """As many pieces as the limit of nodes allows. The rest is one text behind them, or white space
    where no text may be."""
    outside, sample = len(case[0]) + len(case[2]), 20_000
    counts = [count_nodes(_named(case, outside + n).decode()) for n in (0, sample)]
    # The numbers in the pieces grow: nothing has fewer of them than it has in the sample.
    each = max(counts[1] - counts[0], 1) / sample
    length, end = min(size, outside + int((nodes - counts[0]) / each)), case[2].encode()
    filling = b"x" if end.startswith((b"</", b'"')) else b" "
    while True:
        made = _named(case, length)
        whole = made[: len(made) - len(end)] + filling * (size - len(made)) + end
        over = count_nodes(whole.decode()) - nodes
        # What has more nodes than that without any piece is to be refused.
        if over <= 0 or length <= outside:
            return whole
        length -= math.ceil(over / each)
