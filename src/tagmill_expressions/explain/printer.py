"""A part of a definition as text for libxml2, also where it stands apart or is changed.

Literals and names keep their spelling. `lshw:` goes, as in `definition`. Operands get parentheses,
so that what was one part in the definition's tree is one part in the text.
"""

from __future__ import annotations

from dataclasses import replace

from tagmill_expressions.definition import Checked
from tagmill_expressions.documents import MAIN_PROBE
from tagmill_expressions.syntax import (
    Call,
    Filter,
    KindTest,
    NameTest,
    Negation,
    NumberLiteral,
    Operation,
    Path,
    Step,
    StringLiteral,
    SyntaxTree,
)


class Printer:
    def __init__(self, checked: Checked) -> None:
        self._text = checked.text
        self._keeps_main = MAIN_PROBE in checked.namespaces

    def expression(self, part: SyntaxTree) -> str:
        match part:
            case StringLiteral() | NumberLiteral():
                return self._text[part.start : part.end]
            case Call():
                return f"{part.name}({', '.join(map(self.expression, part.arguments))})"
            case Negation():
                return f"{'-' * part.signs}({self.expression(part.operand)})"
            case Operation():
                pieces = [f"({self.expression(part.operands[0])})"]
                for operator, operand in zip(part.operators, part.operands[1:], strict=True):
                    pieces += [operator.symbol, f"({self.expression(operand)})"]
                return " ".join(pieces)
            case Filter():
                return f"({self.expression(part.operand)}){self._predicates(part.predicates)}"
            case Path():
                return self.path(part, part.steps)

    def path(self, path: Path, steps: tuple[Step, ...]) -> str:
        """The path with these steps in place of its own."""
        text = "" if path.origin is None else f"({self.expression(path.origin)})"
        slash = "/" if path.absolute or path.origin is not None else ""
        if not steps:
            return text or slash or "."
        for step in steps:
            if step.written == "//":
                text, slash = f"{text}//", ""
                continue
            text, slash = f"{text}{slash}{self.step(step)}", "/"
        return text

    def step(self, step: Step) -> str:
        match step.written:
            case "." | "..":
                return step.written
            case "@":
                before = "@"
            case "":
                before = ""
            case _:
                before = f"{step.axis}::"
        return f"{before}{self._test(step.test)}{self._predicates(step.predicates)}"

    def wildcard(self, test: NameTest) -> str:
        """Any element of the test's namespace."""
        return self._test(replace(test, local="*"))

    def _test(self, test: NameTest | KindTest) -> str:
        if isinstance(test, KindTest):
            if test.target is None:
                return f"{test.kind}()"
            quote = '"' if "'" in test.target else "'"
            return f"{test.kind}({quote}{test.target}{quote})"
        if test.prefix is None:
            return test.local
        if test.prefix == MAIN_PROBE and not self._keeps_main:
            return "*[namespace-uri()='']" if test.local == "*" else test.local
        return f"{test.prefix}:{test.local}"

    def _predicates(self, predicates: tuple[SyntaxTree, ...]) -> str:
        return "".join(f"[{self.expression(predicate)}]" for predicate in predicates)
