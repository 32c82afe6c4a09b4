"""Definitions of the greatest length allowed, made to cost as much as they can."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tagmill_expressions.definition import MAX_LENGTH
from tagmill_expressions.parser import MAX_NESTING, MAX_TOKENS

_CHAINS = [
    ("a", "|a", ""),
    ("a", "/a", ""),
    ("a", "//a", ""),
    ("//node", "//node", ""),
    ("//node", "//nothere", ""),
    ("a", "/..", ""),
    ("a", "/ancestor::*", ""),
    ("a", "/descendant::*", ""),
    ("a", "[1]", ""),
    ("a", "[@id='x' or @class='y']", ""),
    ("a", "/lshw:*", ""),
    ("a", "=1", ""),
    ("a", " or 0", ""),
    ("a", " or @id='absent'", ""),
    ("a", " or @serial='wwwwwwww'", ""),
    ("a", " or contains(@id,'zz')", ""),
    ("a", " or chlid/@clas", ""),
    ("a", " or zz:a", ""),
    ("a", " and //a[1]", ""),
    ("a", " and not //a", ""),
    ("@a", " or @a=b", ""),
    ("a", " or b and c", ""),
    ("1", " or a<b<c", ""),
    ("/node", " or /list/node/x", ""),
    ("a", " or translate('a','b','c')", ""),
    ("translate('" + "é" * 2500, "','é", "')"),
    ("", "-", "1"),
    ("", "(", "1"),
    ("", "not(", "1"),
    ("", "a[", "1"),
    ("'", "x", "'"),
    ("", "'x", ""),
    ("", "a", ""),
    ("", "a:", ""),
    ("", "1", ""),
]
_NESTS = [
    ("(", ")", "a"),
    ("a[", "]", "1"),
    ("not(", ")", "a"),
    ("//node[a and //node[", "]]", "1"),
    ("(a or b and ", ")", "c"),
    ("concat(1,", ")", "1"),
    # 2 to the power of the depth, wherever it is evaluated, on a document of one element.
    ("/descendant-or-self::node()[", "]", "false()"),
    ("ancestor-or-self::node()[", "]", "false()"),
    ("(.|/)[", "]", "false()"),
]


def named() -> Iterator[tuple[str, str]]:
    for beginning, piece, end in _CHAINS:
        yield f"{beginning} {piece}", _filled(beginning, piece, end)
    for opening, closing, inner in _NESTS:
        levels = _levels(opening)
        nested = opening * levels + inner + closing * levels
        yield f"{opening} nested", nested
        yield f"{opening} nested, repeated", _filled(nested, f" or {nested}", "")


def drawn(rng: Random) -> str:
    piece = _expression(rng, rng.randrange(4))
    if rng.random() < 0.5:
        opening, closing, _ = rng.choice(_NESTS)
        levels = rng.randrange(1, _levels(opening) + 1)
        piece = opening * levels + piece + closing * levels
    sign = rng.choice([" or ", " and ", "|", "=", " < ", "+", "/", "//", "[", ""])
    return _filled(piece, sign + piece, rng.choice(["", "", "]", "[1]", "/@*", ")"]))


def _levels(opening: str) -> int:
    return (MAX_NESTING - 2) // (opening.count("(") + opening.count("[") - opening.count("()") or 1)


def _filled(beginning: str, piece: str, end: str) -> str:
    """Repeat as often as the length allows, and mostly the number of tokens."""
    count = (MAX_LENGTH - len(beginning) - len(end)) // len(piece)
    # Names and signs in a piece, about: a refusal for their number costs less than the rest.
    signs = sum(not character.isalnum() and character not in " '" for character in piece) or 1
    return beginning + piece * min(count, MAX_TOKENS // (signs + 1)) + end


def _expression(rng: Random, depth: int) -> str:
    form = rng.randrange(8) if depth else rng.randrange(3)
    inner = _expression(rng, depth - 1) if depth else "1"
    match form:
        case 0:
            return rng.choice(["a", "@id", "//node", "node", ".", "..", "//*", "/list/node", "x:y"])
        case 1:
            return rng.choice(["'word'", "1", "0.5", "''", "true()", "not a", "'8GB'", "'0x10'"])
        case 2:
            axis = rng.choice(["ancestor", "descendant", "following", "preceding", "attribute"])
            return f"{axis}::{rng.choice(['*', 'node()', 'a', 'node'])}"
        case 3:
            return f"{_expression(rng, 0)}[{inner}]"
        case 4:
            name = rng.choice(
                ["not", "count", "string", "contains", "starts-with", "concat", "sum"]
            )
            two = name in {"contains", "starts-with", "concat"}
            return f"{name}({inner}{', ' + _expression(rng, 1) if two else ''})"
        case 5:
            return f"//node[{inner}]/{rng.choice(['a', '@id', 'text()', '..', 'node'])}"
        case 6:
            sign = rng.choice(["=", "!=", "<", ">", " or ", " and ", "+", " div "])
            return f"{inner}{sign}{_expression(rng, 1)}"
        case _:
            return f"({inner})"
