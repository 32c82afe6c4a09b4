"""The syntax tree of an XPath 1.0 expression.

Every part knows its span [start, end) in characters of the definition's text, from 0; a column is
`start + 1`. Parentheses leave no part of their own: they lie in the span of the part around. An
expression's static type follows from its form, as there are no variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Type = Literal["node-set", "boolean", "number", "string"]

Axis = Literal[
    "ancestor",
    "ancestor-or-self",
    "attribute",
    "child",
    "descendant",
    "descendant-or-self",
    "following",
    "following-sibling",
    "namespace",
    "parent",
    "preceding",
    "preceding-sibling",
    "self",
]

PRECEDENCE: Final[dict[str, int]] = {
    "or": 1,
    "and": 2,
    "=": 3,
    "!=": 3,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "div": 6,
    "mod": 6,
    # Unary minus binds between the products and the union.
    "|": 7,
}

_ARITHMETIC = PRECEDENCE["+"], PRECEDENCE["*"]


@dataclass(frozen=True, slots=True)
class Part:
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StringLiteral(Part):
    value: str

    @property
    def type(self) -> Type:
        return "string"


@dataclass(frozen=True, slots=True)
class NumberLiteral(Part):
    value: float

    @property
    def type(self) -> Type:
        return "number"


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a function of the core library. The last of `arguments` repeats where `most`
    is None."""

    arguments: tuple[Type | Literal["object"], ...]
    least: int
    most: int | None
    type: Type


@dataclass(frozen=True, slots=True)
class Call(Part):
    name: str
    arguments: tuple[SyntaxTree, ...]
    signature: Signature

    @property
    def type(self) -> Type:
        return self.signature.type


@dataclass(frozen=True, slots=True)
class Negation(Part):
    """Unary minus, as many `signs` as are written in a row."""

    signs: int
    operand: SyntaxTree

    @property
    def type(self) -> Type:
        return "number"


@dataclass(frozen=True, slots=True)
class Operator(Part):
    symbol: str


@dataclass(frozen=True, slots=True)
class Operation(Part):
    """Operators of one precedence between `len(operators) + 1` operands, applied from the left.

    A chain is one part, so that a hundred alternatives are no hundred levels.
    """

    operators: tuple[Operator, ...]
    operands: tuple[SyntaxTree, ...]

    @property
    def type(self) -> Type:
        precedence = PRECEDENCE[self.operators[0].symbol]
        if precedence == PRECEDENCE["|"]:
            return "node-set"
        return "number" if precedence in _ARITHMETIC else "boolean"


@dataclass(frozen=True, slots=True)
class NameTest(Part):
    """`name`, `prefix:name`, `*` (local "*", no prefix) or `prefix:*`."""

    prefix: str | None
    local: str


@dataclass(frozen=True, slots=True)
class KindTest(Part):
    """`node()`, `text()`, `comment()`, `processing-instruction()` with or without a target."""

    kind: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Step(Part):
    """`written` is the abbreviation: "//", ".", "..", "@" or "" for a child; "::" says none.

    "//" is a step of its own, `descendant-or-self::node()`.
    """

    axis: Axis
    test: NameTest | KindTest
    predicates: tuple[SyntaxTree, ...]
    written: Literal["//", ".", "..", "@", "", "::"]


@dataclass(frozen=True, slots=True)
class Path(Part):
    """Steps from the context node, from the document (`absolute`), or from what `origin` selects.

    `/` alone is an absolute path without steps.
    """

    absolute: bool
    origin: SyntaxTree | None
    steps: tuple[Step, ...]

    @property
    def type(self) -> Type:
        return "node-set"


@dataclass(frozen=True, slots=True)
class Filter(Part):
    """Predicates on a whole node-set: `(//node)[1]`."""

    operand: SyntaxTree
    predicates: tuple[SyntaxTree, ...]

    @property
    def type(self) -> Type:
        return "node-set"


SyntaxTree = StringLiteral | NumberLiteral | Call | Negation | Operation | Path | Filter


def children(part: Part) -> tuple[Part, ...]:
    """The expressions, steps and node tests right below, in the order of the text."""
    match part:
        case Call(arguments=arguments):
            return arguments
        case Negation(operand=operand):
            return (operand,)
        case Operation(operands=operands):
            return operands
        case Filter(operand=operand, predicates=predicates):
            return (operand, *predicates)
        case Path(origin=origin, steps=steps):
            return steps if origin is None else (origin, *steps)
        case Step(test=test, predicates=predicates):
            return (test, *predicates)
        case _:
            return ()
