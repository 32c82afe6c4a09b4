"""The walk over a definition: where each path arrives, and what to warn of on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tagmill_expressions.definition import Checked
from tagmill_expressions.lint import forms, names, roots, values
from tagmill_expressions.lint.findings import Findings, Warning
from tagmill_expressions.lint.places import DOCUMENT, Places, TooMuch, World
from tagmill_expressions.syntax import Call, Filter, NameTest, Negation, Operation, Path, SyntaxTree
from tagmill_expressions.vocabulary import Vocabulary


def lint(checked: Checked, vocabulary: Vocabulary | None) -> list[Warning]:
    """The warnings, in the order of the text. Without a vocabulary, only those that the form gives.

    `vocabulary` is that of all documents that the definition is for: what it says no document has
    is reported. Nothing is evaluated on a document. Takes a millisecond for what people write, at
    most a second for the longest definition: what would look at more of the vocabulary than
    MAX_LOOKED_AT is judged by its form.
    """
    try:
        return _lint(checked, vocabulary)
    except TooMuch:
        return _lint(checked, None)


def _lint(checked: Checked, vocabulary: Vocabulary | None) -> list[Warning]:
    findings = Findings(checked.text)
    world = World(checked, vocabulary)
    forms.definition(findings, checked.ast)
    if checked.type != "number":
        forms.condition(findings, checked.ast)
    _Linter(findings, world, checked.ast).walk(checked.ast, world.roots)
    if not findings.warnings:
        roots.everything(findings, world, checked.ast)
    return findings.in_order()


class _Linter:
    def __init__(self, findings: Findings, world: World, whole: SyntaxTree) -> None:
        self._findings = findings
        self._world = world
        self._mentioned = roots.named_roots(whole)
        self._predicates = 0

    def walk(self, part: SyntaxTree, context: Places, parent: SyntaxTree | None = None) -> Places:
        """The places where a node-set lies; None for anything else."""
        match part:
            case Path():
                return self._path(part, context, parent)
            case Filter():
                places = self.walk(part.operand, context, part)
                self._predicates_of(part.predicates, places)
                return places
            case Operation():
                return self._operation(part, context)
            case Call():
                found = [self.walk(argument, context, part) for argument in part.arguments]
                searches = part.name in {"contains", "starts-with"}
                if searches and part.arguments[0].type == "node-set":
                    values.call(self._findings, self._world, part, found[0])
            case Negation():
                self.walk(part.operand, context, part)
        return None

    def _operation(self, part: Operation, context: Places) -> Places:
        symbol = part.operators[0].symbol
        if symbol == "or":
            self._alternatives(part, context)
            return None
        if symbol in forms.COMPARISONS:
            self._comparison(part, context)
            return None
        if symbol == "|":
            return self._union(part, context)
        for operand in part.operands:
            self.walk(operand, context, part)
        return None

    def _union(self, part: Operation, context: Places) -> Places:
        found = []
        by_operand: list[list[Warning]] = []
        for operand in part.operands:
            with self._apart() as warnings:
                found.append(self.walk(operand, context, part))
            by_operand.append(warnings)
        self._add_alternatives(by_operand, [True] * len(by_operand))
        if None in found:
            return None
        self._world.spend(sum(len(places or ()) for places in found))
        return frozenset(place for places in found for place in places or ())

    def _alternatives(self, part: Operation, context: Places) -> None:
        """`@id='cpu' or @id='cpu:0'` is written for either: one that exists is enough."""
        by_operand: list[list[Warning]] = []
        for operand in part.operands:
            with self._apart() as warnings:
                self.walk(operand, context, part)
            by_operand.append(warnings)
        self._add_alternatives(by_operand, [_is_test_of_value(o) for o in part.operands])

    @contextmanager
    def _apart(self) -> Iterator[list[Warning]]:
        """Collects what is found meanwhile in a list of its own."""
        before, self._findings.warnings = self._findings.warnings, []
        try:
            yield self._findings.warnings
        finally:
            self._findings.warnings = before

    def _add_alternatives(self, by_operand: list[list[Warning]], alike: list[bool]) -> None:
        met = any(test and not warnings for test, warnings in zip(alike, by_operand, strict=True))
        for test, warnings in zip(alike, by_operand, strict=True):
            forgiven = test and met
            self._findings.warnings += [
                warning
                for warning in warnings
                if not (forgiven and warning.code == "unknown_value")
            ]

    def _comparison(self, part: Operation, context: Places) -> None:
        if forms.is_chained(self._findings.text, part):
            self._chain(part, context)
            return
        operands = part.operands
        places: list[Places] = [None] * len(operands)
        bare = -1
        # The right one first: who forgets quotes forgets them there.
        for at in reversed(range(len(operands))):
            others = operands[at - 1] if at else operands[1]
            if bare < 0 and others.type == "node-set":
                bare = (
                    at
                    if names.bare_name(self._findings, self._world, operands[at], context)
                    else -1
                )
        for at, operand in enumerate(operands):
            if at != bare:
                places[at] = self.walk(operand, context, part)
        values.comparison(self._findings, self._world, part, (places[0], places[1]))

    def _chain(self, part: Operation, context: Places) -> None:
        """What its operands warn of is true, and their rewrites are of no use alone."""
        forms.chained(self._findings, self._world, part)
        with self._apart() as warnings:
            for operand in part.operands:
                self.walk(operand, context, part)
        self._findings.warnings += [replace(warning, rewrite=None) for warning in warnings]

    def _path(self, path: Path, context: Places, parent: SyntaxTree | None) -> Places:
        world, findings = self._world, self._findings
        forms.positions(findings, path)
        named_operator = names.operator_step(findings, world, path, parent)
        places, broken = self._start(path, context)
        if named_operator is None and roots.depends(
            findings, world, path, self._mentioned, top=not self._predicates
        ):
            # What follows is judged as if it began at the right place.
            broken, places = True, None
        for at, step in enumerate(path.steps):
            before = places
            undeclared = isinstance(step.test, NameTest) and names.is_undeclared(
                findings, world, step.test
            )
            if step is named_operator or undeclared:
                places, broken = None, True
            else:
                places = world.step(before, step)
            if places is not None and not places:
                if not broken:
                    names.missing(findings, world, path, at, before, nested=self._predicates > 0)
                places, broken = None, True
            self._predicates_of(step.predicates, places)
        return places

    def _start(self, path: Path, context: Places) -> tuple[Places, bool]:
        if path.origin is not None:
            return self.walk(path.origin, context, path), False
        if path.absolute:
            return (frozenset([DOCUMENT]) if self._world.known else None), False
        return context, False

    def _predicates_of(self, predicates: tuple[SyntaxTree, ...], places: Places) -> None:
        self._predicates += 1
        for predicate in predicates:
            if predicate.type != "number":
                forms.condition(self._findings, predicate)
            self.walk(predicate, places)
        self._predicates -= 1


def _is_test_of_value(part: SyntaxTree) -> bool:
    if isinstance(part, Operation):
        return part.operators[0].symbol == "="
    return isinstance(part, Call) and part.name in {"contains", "starts-with"}
