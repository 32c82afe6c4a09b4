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
    if is_number(text):
        number = to_number(text)
        same = [value for value in kept if is_number(value) and to_number(value) == number]
        if same:
            message = (
                f"{symbol} compares with text as text, and documents write '{same[0]}', "
                f"not '{text}': compare with the number, without quotes"
            )
            # libxml2 reads exponents in text, and the language has none.
            by = same[0].strip() if same[0].strip().isdigit() else None
            findings.add("number_compared_as_text", message, literal, by=by)
            return
    subject = _subject(findings, nodes, places)
    message = f"no {subject} is '{text}' in any document"
    span = (literal.start, literal.end)
    by = None
    folded = text.strip().casefold()
    spelt = [value for value in kept if value.strip().casefold() == folded]
    family = [value for value in kept if value.startswith(f"{text}:")]
    quote = findings.text[literal.start]
    if spelt:
        hint = f": it is written '{spelt[0]}'"
        by = f"{quote}{spelt[0]}{quote}" if len(spelt) == 1 and quote not in spelt[0] else None
    elif family:
        hint = f": there are {listed(family)}"
        if symbol == "=" and isinstance(nodes, Path) and len(nodes.steps) == 1:
            by = f"starts-with({findings.source(nodes)}, {quote}{text}:{quote})"
            span = (part.start, part.end)
    elif containing := [v for v in kept if len(text) > 1 and folded in v.casefold()]:
        hint = f": there {'is' if len(containing) == 1 else 'are'} {listed(containing, _NEAR)}"
        by = _containing(findings, nodes, containing, text, quote) if symbol == "=" else None
        span = (part.start, part.end)
    elif other := _other_attribute(world, places, text):
        hint = f": it is a value of @{other}"
    else:
        hint = _hint(findings, world, text, places)
    findings.add("unknown_value", message + hint, literal, replace=span, by=by)


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
