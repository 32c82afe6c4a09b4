"""Recursive descent over the grammar of XPath 1.0, section 3; operators by precedence.

What depends on types is refused in passing: an operand or an argument that must be a node-set and
never can be. So errors come in the order of the text.
"""

from __future__ import annotations

from typing import NoReturn, get_args

from tagmill_expressions import checks
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.lexer import Kind, Token, tokens
from tagmill_expressions.syntax import (
    PRECEDENCE,
    Axis,
    Call,
    Filter,
    KindTest,
    NameTest,
    Negation,
    NumberLiteral,
    Operation,
    Operator,
    Path,
    Step,
    StringLiteral,
    SyntaxTree,
)

MAX_NESTING = 32
"""How deep parentheses, predicates and arguments may nest. People's definitions nest to 5; a level
takes this parser, and whoever walks the tree, some ten Python frames of the thousand there are."""

MAX_TOKENS = 8_192
"""libxml2 nests an operation for every step, predicate and operator in a row, each of two tokens or
more, and stops at 5,000."""

_AXES: dict[str, Axis] = {axis: axis for axis in get_args(Axis)}
_UNION = PRECEDENCE["|"]
_PRIMARY = frozenset({Kind.STRING, Kind.NUMBER, Kind.FUNCTION})
_STEP = frozenset({Kind.NAME, Kind.KIND, Kind.AXIS})
_STEP_SIGNS = frozenset({".", "..", "@"})


def parse(text: str) -> SyntaxTree:
    """Raises DefinitionError. The caller has bounded the length."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        if len(self._tokens) > MAX_TOKENS:
            message = f"more than {MAX_TOKENS:,} names and signs: split it into several tags"
            self._refuse(message, self._tokens[MAX_TOKENS - 1])
        self._at = 0
        self._nesting = 0
        self._predicates = 0

    def whole(self) -> SyntaxTree:
        if len(self._tokens) == 1:
            self._refuse("the definition is empty: write an XPath expression, such as //node")
        expression = self._expression()
        if self._peek.kind is not Kind.END:
            self._unexpected("an operator or the end")
        return expression

    # -- tokens ----------------------------------------------------------------------------------

    @property
    def _peek(self) -> Token:
        return self._tokens[self._at]

    @property
    def _end(self) -> int:
        """The end of the last token that was taken."""
        return self._tokens[self._at - 1].end

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _is(self, text: str) -> bool:
        return self._peek.text == text and self._peek.kind is Kind.PUNCTUATION

    def _accept(self, text: str) -> bool:
        if not self._is(text):
            return False
        self._at += 1
        return True

    def _close(self, text: str, opening: Token) -> None:
        if not self._accept(text):
            self._unexpected(f"{text} for the {opening.text} of column {opening.start + 1}")

    def _refuse(self, message: str, token: Token | None = None) -> NoReturn:
        raise DefinitionError(message, (token or self._peek).start + 1)

    def _unexpected(self, wanted: str) -> NoReturn:
        found = self._peek.text if self._peek.kind is not Kind.END else "the end"
        self._refuse(f"expected {wanted}, found {found}")

    # -- expressions -----------------------------------------------------------------------------

    def _expression(self) -> SyntaxTree:
        """Everything but `|`, which belongs to the operands."""
        self._nest(1)
        chain = _Chain()
        while True:
            start = self._peek.start
            operand = self._unary()
            chain.add(operand, start, self._end)
            token = self._peek
            precedence = PRECEDENCE[token.text] if token.kind is Kind.OPERATOR else 0
            chain.join_above(precedence)
            if not precedence:
                break
            self._take()
            chain.operators.append(Operator(token.start, token.end, token.text))
        self._nest(-1)
        return chain.operands[0]

    def _unary(self) -> SyntaxTree:
        start, signs = self._peek.start, 0
        while self._peek.kind is Kind.OPERATOR and self._peek.text == "-":
            self._take()
            signs += 1
        operand = self._union()
        return Negation(start, self._end, signs, operand) if signs else operand

    def _union(self) -> SyntaxTree:
        chain = _Chain()
        while True:
            start = self._peek.start
            operand = self._path()
            chain.add(operand, start, self._end)
            token = self._peek
            more = token.kind is Kind.OPERATOR and token.text == "|"
            if more or chain.operators:
                checks.require_nodes(operand, "| joins node-sets")
            if not more:
                break
            self._take()
            chain.operators.append(Operator(token.start, token.end, token.text))
        chain.join_above(0)
        return chain.operands[0]

    def _nest(self, levels: int) -> None:
        self._nesting += levels
        if self._nesting > MAX_NESTING:
            self._refuse(f"nested deeper than {MAX_NESTING} levels: write a flatter expression")

    # -- paths -----------------------------------------------------------------------------------

    def _path(self) -> SyntaxTree:
        token = self._peek
        if token.kind is Kind.SLASH:
            return self._absolute()
        if self._is_step():
            steps = self._steps()
            return Path(token.start, self._end, False, None, steps)
        if token.kind not in _PRIMARY and not self._is("("):
            self._unexpected("a path, a value or a function")
        primary = self._filter()
        slash = self._peek
        if slash.kind is not Kind.SLASH:
            return primary
        checks.require_nodes(primary, f"{slash.text} continues a path")
        steps = self._steps()
        return Path(token.start, self._end, False, primary, steps)

    def _absolute(self) -> Path:
        token = self._peek
        if token.text == "//":
            steps = self._steps()
        else:
            self._take()
            steps = self._steps() if self._is_step() else ()
        return Path(token.start, self._end, True, None, steps)

    def _is_step(self) -> bool:
        token = self._peek
        return token.kind in _STEP or (token.kind is Kind.PUNCTUATION and token.text in _STEP_SIGNS)

    def _steps(self) -> tuple[Step, ...]:
        """Steps, from the first one or from the slash before it."""
        steps = [] if self._peek.kind is Kind.SLASH else [self._step()]
        while self._peek.kind is Kind.SLASH:
            slash = self._take()
            if slash.text == "//":
                test = KindTest(slash.start, slash.end, "node")
                steps.append(Step(slash.start, slash.end, "descendant-or-self", test, (), "//"))
            if not self._is_step():
                self._unexpected(f"a step (a name, *, @name, . or ..) after {slash.text}")
            steps.append(self._step())
        return tuple(steps)

    def _step(self) -> Step:
        token = self._peek
        if self._is(".") or self._is(".."):
            return self._dots()
        if self._accept("@"):
            return self._tested(token, "attribute", "@")
        if token.kind is not Kind.AXIS:
            return self._tested(token, "child", "")
        axis = _AXES.get(token.text)
        if axis is None:
            hint = checks.suggest(token.text, _AXES) or ": the axes are " + ", ".join(_AXES)
            self._refuse(f"unknown axis {token.text}{hint}")
        self._take()
        self._take()  # ::, or it would be no axis
        return self._tested(token, axis, "::")

    def _dots(self) -> Step:
        token = self._take()
        test = KindTest(token.start, token.end, "node")
        if self._is("["):
            axis = "self" if token.text == "." else "parent"
            self._refuse(f"{token.text} takes no predicate: write {axis}::node()[...]")
        if token.text == ".":
            return Step(token.start, token.end, "self", test, (), ".")
        return Step(token.start, token.end, "parent", test, (), "..")

    def _tested(self, first: Token, axis: Axis, written: str) -> Step:
        token = self._peek
        if token.kind is Kind.KIND:
            test: NameTest | KindTest = self._kind_test()
        elif token.kind is Kind.NAME:
            self._take()
            prefix, colon, local = token.text.rpartition(":")
            test = NameTest(token.start, token.end, prefix if colon else None, local)
        elif token.kind is Kind.FUNCTION:
            self._refuse(f"{token.text}() is no step: write {token.text}(path) around the path")
        else:
            self._unexpected(f"a name, * or a kind of node such as text() after {first.text}")
        predicates = self._bracketed()
        return Step(first.start, self._end, axis, test, predicates, written)  # type: ignore[arg-type]

    def _kind_test(self) -> KindTest:
        token, opening, target = self._take(), self._take(), None
        if token.text == "processing-instruction" and self._peek.kind is Kind.STRING:
            target = self._take().text[1:-1]
        self._close(")", opening)
        return KindTest(token.start, self._end, token.text, target)

    def _bracketed(self) -> tuple[SyntaxTree, ...]:
        predicates = []
        while self._is("["):
            opening = self._take()
            self._predicates += 1
            predicates.append(self._expression())
            self._predicates -= 1
            self._close("]", opening)
        return tuple(predicates)

    # -- primaries -------------------------------------------------------------------------------

    def _filter(self) -> SyntaxTree:
        token = self._peek
        primary = self._primary()
        if not self._is("["):
            return primary
        checks.require_nodes(primary, "a predicate filters a node-set")
        predicates = self._bracketed()
        return Filter(token.start, self._end, primary, predicates)

    def _primary(self) -> SyntaxTree:
        token = self._take()
        if token.kind is Kind.STRING:
            return StringLiteral(token.start, token.end, token.text[1:-1])
        if token.kind is Kind.NUMBER:
            return NumberLiteral(token.start, token.end, float(token.text))
        if token.kind is Kind.FUNCTION:
            return self._call(token)
        inner = self._expression()
        self._close(")", token)
        return inner

    def _call(self, name: Token) -> Call:
        signature = checks.function(name, in_predicate=self._predicates > 0)
        opening = self._take()
        arguments: list[SyntaxTree] = []
        if not self._is(")"):
            arguments.append(self._expression())
            while self._accept(","):
                arguments.append(self._expression())
        self._close(")", opening)
        checks.arguments(name, signature, arguments)
        return Call(name.start, self._end, name.text, tuple(arguments), signature)


class _Chain:
    """Operands and the operators between them, those that bind tighter already joined."""

    def __init__(self) -> None:
        self.operands: list[SyntaxTree] = []
        self.operators: list[Operator] = []
        # Where each operand begins and ends, with its parentheses.
        self._spans: list[tuple[int, int]] = []

    def add(self, operand: SyntaxTree, start: int, end: int) -> None:
        self.operands.append(operand)
        self._spans.append((start, end))

    def join_above(self, precedence: int) -> None:
        """Joins what binds tighter than an operator of this precedence, which comes next."""
        while self.operators and PRECEDENCE[self.operators[-1].symbol] > precedence:
            self._join(PRECEDENCE[self.operators[-1].symbol])

    def _join(self, precedence: int) -> None:
        """Joins the operators of one precedence at the end with their operands."""
        first = len(self.operators) - 1
        while first and PRECEDENCE[self.operators[first - 1].symbol] == precedence:
            first -= 1
        span = self._spans[first][0], self._spans[-1][1]
        operators, operands = self.operators[first:], self.operands[first:]
        del self.operators[first:], self.operands[first:], self._spans[first:]
        self.add(Operation(*span, tuple(operators), tuple(operands)), *span)
