"""The tokens of XPath 1.0, by its sections 3.7 and "Namespaces in XML" for names.

Section 3.7's rules decide what `*` and a name mean by the token before and the characters after:
the same letters are an operator, a function, an axis, a kind of node or a name.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tagmill_expressions.errors import DefinitionError

# XML 1.0 (fifth edition), productions 4 and 4a, without the colon.
_NAME_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d"
    "\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NCNAME = f"[{_NAME_START}][{_NAME_START}\\-.0-9\u00b7\u0300-\u036f\u203f-\u2040]*"
NCNAME: Final = re.compile(_NCNAME)
ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A character that XML 1.0 does not allow."""

KINDS: Final = frozenset({"node", "text", "comment", "processing-instruction"})
_WORDS: Final = frozenset({"and", "or", "div", "mod"})


class Kind(Enum):
    END = "the end"
    STRING = "a string"
    NUMBER = "a number"
    OPERATOR = "an operator"
    SLASH = "a slash"
    NAME = "a name"
    FUNCTION = "a function"
    KIND = "a kind of node"
    AXIS = "an axis"
    PUNCTUATION = "punctuation"


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is as written; for a STRING it includes the quotes, for an AXIS it is the name."""

    kind: Kind
    text: str
    start: int
    end: int


_TOKEN = rf"""
      (?P<space>[ \t\r\n]+)
    | (?P<string>"[^"]*"|'[^']*')
    | (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
    | (?P<slash>//?)
    | (?P<operator>!=|<=|>=|[=<>|+\-])
    | (?P<punctuation>\.\.|::|[.()\[\]@,])
    | (?P<star>\*)
    | (?P<name>{_NCNAME}(?::(?:{_NCNAME}|\*))?)
    """
_AFTER = re.compile(r"[ \t\r\n]*(\(|::)?")
# After these a `*` or a name is an operand; after anything else it is an operator.
_OPENING = frozenset({"@", "::", "(", "[", ","})


@functools.cache
def _pattern() -> re.Pattern[str]:
    """Compiled for the first definition: that takes 10 ms, which no start of a process should."""
    return re.compile(_TOKEN, re.VERBOSE)


def tokens(text: str) -> list[Token]:
    """Raises DefinitionError. The last token is END."""
    found: list[Token] = []
    position, pattern = 0, _pattern()
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        group, end = match.lastgroup, match.end()
        if group != "space":
            found.append(_token(text, str(group), position, end, _is_operand_next(found)))
        position = end
    found.append(Token(Kind.END, "", len(text), len(text)))
    return found


def _is_operand_next(found: list[Token]) -> bool:
    return (
        not found
        or found[-1].kind in {Kind.OPERATOR, Kind.SLASH, Kind.AXIS}
        or found[-1].text in _OPENING
    )


def _token(text: str, group: str, start: int, end: int, operand: bool) -> Token:
    word = text[start:end]
    if group in {"name", "star"} and not operand:
        if word != "*" and word not in _WORDS:
            hint = "put an operator before it (and, or, =, ...), or quotes around text"
            raise DefinitionError(f"{word} cannot follow here: {hint}", start + 1)
        return Token(Kind.OPERATOR, word, start, end)
    if group == "star":
        return Token(Kind.NAME, word, start, end)
    if group == "name":
        return Token(_name_kind(text, word, end), word, start, end)
    return Token(Kind[group.upper()], word, start, end)


def _name_kind(text: str, word: str, end: int) -> Kind:
    after = _AFTER.match(text, end)
    follows = after[1] if after else None
    if follows == "::":
        return Kind.AXIS
    if follows == "(":
        return Kind.KIND if word in KINDS else Kind.FUNCTION
    return Kind.NAME


# What word processors and chats make of quotes.
_DOUBLE = "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033"
_SINGLE = "\u2018\u2019\u201a\u201b\u2039\u203a\u2032\u00b4`"
_STRAIGHT = str.maketrans(dict.fromkeys(_DOUBLE, '"') | dict.fromkeys(_SINGLE, "'"))


def _unreadable(text: str, position: int) -> DefinitionError:
    character = text[position]
    column = position + 1
    if ord(character) in _STRAIGHT:
        straight = text[position:].translate(_STRAIGHT)
        return DefinitionError(
            f"{character} is a typographic quote: write {straight[0]} around text",
            column,
            text[:position] + straight,
        )
    if character in "\"'":
        return DefinitionError(f"the string has no closing {character}: add it", column)
    if character == "$":
        return DefinitionError(
            "variables are not supported: write the value in place of the variable", column
        )
    if character == "!":
        return DefinitionError("! is not an operator: write != or not(...)", column)
    if character == "&":
        return DefinitionError("& is not an operator: write and", column)
    if character == ":":
        return DefinitionError("a colon joins a prefix and a name: write prefix:name", column)
    return DefinitionError(
        f"the character {character!r} has no meaning in XPath: remove it", column
    )
