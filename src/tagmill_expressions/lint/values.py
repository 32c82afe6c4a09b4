"""Warnings about texts and numbers that paths are compared with."""

from __future__ import annotations

from tagmill_expressions.lint.findings import Findings, listed
from tagmill_expressions.lint.places import Attribute, Place, Places, World, local
from tagmill_expressions.syntax import (
    Call,
    Negation,
    NumberLiteral,
    Operation,
    Path,
    StringLiteral,
    SyntaxTree,
)
from tagmill_expressions.vocabulary import State, Values, is_number, to_number

_EQUALITY = frozenset({"=", "!="})
# Beyond, comparing the spelling takes more than a few milliseconds.
_MAX_COMPARED = 2_000
_NEAR = 3
# Up to this many different values are a list that somebody reads; more are serials.
_MAX_LISTED = 40
_SHOWN = 12
# A number of bytes or Hz that small is one of GiB or GHz, most likely.
_SMALL = 65_536
_ORDER = frozenset({"<", "<=", ">", ">="})


def comparison(
    findings: Findings, world: World, part: Operation, places: tuple[Places, Places]
) -> None:
    """Warns of a comparison of the first two operands, whose paths arrive at `places`."""
    symbol = part.operators[0].symbol
    for this, other in ((0, 1), (1, 0)):
        literal, nodes = part.operands[this], part.operands[other]
        if nodes.type != "node-set":
            continue
        values = world.values(places[other])
        if isinstance(literal, StringLiteral) and symbol in _EQUALITY:
            _equal_to(findings, world, part, literal=literal, nodes=nodes, places=places[other])
        elif isinstance(literal, StringLiteral) and not is_number(literal.value):
            message = (
                f"{symbol} compares numbers, and '{literal.value}' is none, so this is never true: "
                "write the number, without a unit"
            )
            findings.add("number_compared_as_text", message, literal)
        elif _is_number(literal) and values and not any(v.has_number for v in values):
            seen = [value for value in _kept(world, values) if value]
            hint = f", such as '{seen[0]}'" if seen else ""
            message = f"{findings.source(nodes)} is text in every document{hint}, never a number"
            findings.add("number_compared_as_text", message, part)
        elif symbol in _ORDER:
            _units(findings, world, literal, nodes=nodes, places=places[other])


def _units(
    findings: Findings, world: World, literal: SyntaxTree, *, nodes: SyntaxTree, places: Places
) -> None:
    """`size > 8`, where sizes are in bytes."""
    if not isinstance(literal, NumberLiteral) or not 0 < literal.value < _SMALL:
        return
    units: set[str] = set()
    for place in places or ():
        attributes = world.vocabulary.elements[place].attributes if isinstance(place, State) else {}
        units.update((attributes["units"].kept if "units" in attributes else None) or ())
    values = _kept(world, world.values(places) or [])
    small = any(is_number(value) and 0 < to_number(value) < _SMALL for value in values)
    if "bytes" not in units or small:
        return
    gib = int(literal.value * 1024**3)
    findings.add(
        "number_of_bytes",
        f"{findings.source(nodes)} is in {' or '.join(['bytes', *sorted(units - {'bytes'})])}: "
        f"{findings.source(literal)} GiB are {gib}",
        literal,
    )


def call(findings: Findings, world: World, part: Call, places: Places) -> None:
    """contains() and starts-with() on a path that arrives at `places`."""
    wanted = part.arguments[1]
    values = world.values(places)
    if not isinstance(wanted, StringLiteral) or not wanted.value or not values:
        return
    if not all(found.listed for found in values):
        return
    text = wanted.value
    kept = _kept(world, values)
    begins = part.name == "starts-with"
    if any(value.startswith(text) if begins else text in value for value in kept):
        return
    verb = "begins with" if begins else "contains"
    subject = _subject(findings, part.arguments[0], places)
    folded = text.casefold()
    alike = [value for value in kept if folded in value.casefold()]
    hint = (
        f": there is '{alike[0]}', in other letters"
        if alike
        else _hint(findings, world, text, places)
    )
    findings.add("unknown_value", f"no {subject} {verb} '{text}' in any document{hint}", wanted)


def _equal_to(
    findings: Findings,
    world: World,
    part: Operation,
    *,
    literal: StringLiteral,
    nodes: SyntaxTree,
    places: Places,
) -> None:
    values = world.values(places)
    text, symbol = literal.value, part.operators[0].symbol
    if not text or not values or any(found.may_have(text) for found in values):
        return
    kept = _kept(world, values)
    if _is_written_otherwise(findings, literal, symbol, kept):
        return
    hint, span, by = _instead(findings, part, literal, nodes, kept)
    if not hint:
        other = _other_attribute(world, places, text)
        hint = f": it is a value of @{other}" if other else _hint(findings, world, text, places)
    message = f"no {_subject(findings, nodes, places)} is '{text}' in any document"
    findings.add("unknown_value", message + hint, literal, replace=span, by=by)


def _is_written_otherwise(
    findings: Findings, literal: StringLiteral, symbol: str, kept: list[str]
) -> bool:
    """Whether documents have the same number in other digits, which is warned of."""
    if not is_number(literal.value):
        return False
    number = to_number(literal.value)
    same = [value for value in kept if is_number(value) and to_number(value) == number]
    if not same:
        return False
    message = (
        f"{symbol} compares with text as text, and documents write '{same[0]}', "
        f"not '{literal.value}': compare with the number, without quotes"
    )
    # libxml2 reads exponents in text, and the language has none.
    by = same[0].strip() if same[0].strip().isdigit() else None
    findings.add("number_compared_as_text", message, literal, by=by)
    return True


def _instead(
    findings: Findings,
    part: Operation,
    literal: StringLiteral,
    nodes: SyntaxTree,
    kept: list[str],
) -> tuple[str, tuple[int, int], str | None]:
    """What is alike among the values: a hint, or "", and what may take the place of which span."""
    text, quote = literal.value, findings.text[literal.start]
    is_equality = part.operators[0].symbol == "="
    own, whole = (literal.start, literal.end), (part.start, part.end)
    folded = text.strip().casefold()
    if spelt := [value for value in kept if value.strip().casefold() == folded]:
        is_clear = len(spelt) == 1 and quote not in spelt[0]
        by = f"{quote}{spelt[0]}{quote}" if is_clear else None
        return f": it is written '{spelt[0]}'", own, by
    if family := [value for value in kept if value.startswith(f"{text}:")]:
        hint = f": there are {listed(family)}"
        if is_equality and isinstance(nodes, Path) and len(nodes.steps) == 1:
            return hint, whole, f"starts-with({findings.source(nodes)}, {quote}{text}:{quote})"
        return hint, own, None
    if containing := [v for v in kept if len(text) > 1 and folded in v.casefold()]:
        by = _containing(findings, nodes, containing, text, quote) if is_equality else None
        verb = "is" if len(containing) == 1 else "are"
        return f": there {verb} {listed(containing, _NEAR)}", whole, by
    return "", own, None


def _containing(
    findings: Findings, nodes: SyntaxTree, values: list[str], text: str, quote: str
) -> str | None:
    """`vendor[contains(., "NVIDIA")]`: contains() alone looks at the first vendor only."""
    if not isinstance(nodes, Path) or nodes.steps[-1].written in {".", ".."}:
        return None
    at = values[0].casefold().find(text.casefold())
    written = text if any(text in value for value in values) else values[0][at : at + len(text)]
    return f"{findings.source(nodes)}[contains(., {quote}{written}{quote})]"


def _other_attribute(world: World, places: Places, text: str) -> str | None:
    """Another attribute of the same elements that has the value."""
    for place in sorted(p for p in places or () if isinstance(p, Attribute)):
        world.spend(len(world.vocabulary.elements[place.state].attributes))
        for name, values in sorted(world.vocabulary.elements[place.state].attributes.items()):
            if name != place.attribute and values.kept and text in values.kept:
                return local(name)
    return None


def _hint(findings: Findings, world: World, text: str, places: Places) -> str:
    """The values that are spelt nearest."""
    # A machine's parts before the machines themselves, which bear their hostnames.
    nested = frozenset(place for place in places or () if _is_nested(place))
    kept = _kept(world, world.values(nested or places) or [])
    near = findings.near(text, kept[:_MAX_COMPARED], _NEAR)
    if near:
        return f": the nearest is {' or '.join(repr(value) for value in near)}"
    world.spend(len(kept) * len(text) // 64)
    begins = sorted({value for value in kept if value and value in text})
    if begins:
        return f": the nearest is '{max(begins, key=len)}'"
    known = world.values(nested or places) or []
    there = [value for value in kept if value]
    if not there or len(there) > _MAX_LISTED or not all(found.listed for found in known):
        return ""
    return f": there {'is' if len(there) == 1 else 'are'} {listed(there, _SHOWN)}"


def _kept(world: World, values: list[Values]) -> list[str]:
    # To sort them takes longer than to look at them.
    world.spend(3 * sum(found.weight for found in values))
    return sorted({value for found in values for value in found.kept or ()})


def _is_nested(place: Place) -> bool:
    state = place.state if isinstance(place, Attribute) else place
    return isinstance(state, State) and state.nested


def _subject(findings: Findings, nodes: SyntaxTree, places: Places) -> str:
    names = sorted(
        {
            f"@{local(place.attribute)}"
            if isinstance(place, Attribute)
            else f"<{local(getattr(place, 'text_of', place).name)}>"  # type: ignore[union-attr]
            for place in places or ()
        }
    )
    return listed(names, 2) if names else findings.source(nodes)


def _is_number(part: SyntaxTree) -> bool:
    if isinstance(part, Negation):
        return _is_number(part.operand)
    return isinstance(part, NumberLiteral)
