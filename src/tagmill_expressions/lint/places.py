"""Where in the fleet's documents a path can arrive, by the vocabulary alone.

The answer is a superset of what an evaluation on any document finds. So where it is empty, no
document has it; where nothing can be said, it is None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tagmill_expressions.checks import XML_NAMESPACE
from tagmill_expressions.definition import Checked
from tagmill_expressions.documents import MAIN_PROBE
from tagmill_expressions.syntax import NameTest, Step
from tagmill_expressions.vocabulary import State, Values, Vocabulary


class Attribute(NamedTuple):
    state: State
    attribute: str


class Text(NamedTuple):
    text_of: State


class Document(NamedTuple):
    document: bool = True


class TooMuch(Exception):
    """A definition that would look at more of the vocabulary than is allowed."""


MAX_LOOKED_AT: Final = 1_000_000
"""Places and values, per definition: half a second. What people write looks at some 10,000."""

DOCUMENT: Final = Document()
_DOWN = frozenset({"child", "descendant", "descendant-or-self"})
Place = State | Attribute | Text | Document
Places = frozenset[Place] | None


class World:
    """Without a vocabulary, or with one that is open, nothing is known."""

    def __init__(self, checked: Checked, vocabulary: Vocabulary | None) -> None:
        if vocabulary is None or vocabulary.open:
            vocabulary = Vocabulary()
        self.vocabulary = vocabulary
        self.known = vocabulary.documents > 0
        """Otherwise every place is None."""
        self._declared = checked.namespaces
        self._left = MAX_LOOKED_AT
        # A path of a thousand steps may arrive at the same places with each.
        self._steps: dict[tuple[frozenset[Place] | None, str, tuple[object, ...]], Places] = {}
        self._parents: dict[State, set[Place]] = {}
        self.namespaces: set[str] = set()
        for root in self.vocabulary.roots:
            self._parents.setdefault(root, set()).add(DOCUMENT)
        for state, element in self.vocabulary.elements.items():
            self.namespaces.add(namespace(state.name))
            for child in element.children:
                self._parents.setdefault(child, set()).add(state)

    def spend(self, count: int) -> None:
        """Raises TooMuch once more was looked at than is allowed."""
        self._left -= count
        if self._left < 0:
            raise TooMuch

    @property
    def roots(self) -> Places:
        return frozenset(self.vocabulary.roots) if self.known else None

    def expanded(self, test: NameTest, *, local: str | None = None) -> str:
        """The name as lxml writes it: `{uri}local`, or the local name alone without a namespace."""
        uri = self.uri(test)
        name = test.local if local is None else local
        return f"{{{uri}}}{name}" if uri else name

    def uri(self, test: NameTest) -> str:
        if test.prefix is None:
            return ""
        if test.prefix == "xml":
            return XML_NAMESPACE
        if test.prefix == MAIN_PROBE and MAIN_PROBE not in self._declared:
            return ""
        return self._declared.get(test.prefix, test.prefix)

    def step(self, places: Places, step: Step) -> Places:
        """Without the predicates."""
        if not self.known:
            return None
        test = step.test
        key = (
            (test.prefix, test.local) if isinstance(test, NameTest) else (test.kind, test.target, 0)
        )
        try:
            return self._steps[places, step.axis, key]
        except KeyError:
            found = self._steps[places, step.axis, key] = self._step(places, step)
            return found

    def _step(self, places: Places, step: Step) -> Places:
        if isinstance(step.test, NameTest):
            if places is None:
                return self._anywhere(step, step.test)
            reached = self._along(places, step)
            return None if reached is None else frozenset(self._named(reached, step, step.test))
        if places is None:
            return None
        if step.test.kind == "text" and step.axis in {"child", "descendant"}:
            return self._texts(places, step)
        if step.test.kind == "node" and step.axis != "attribute":
            reached = self._along(places, step)
            if reached is None or step.axis not in _DOWN:
                return reached
            return reached | self._texts(places, step)
        return None

    def values(self, places: Places) -> list[Values] | None:
        """The string values of what is at these places; None where one of them is not known."""
        if places is None:
            return None
        self.spend(len(places))
        found = []
        for place in places:
            if isinstance(place, Document):
                return None
            if isinstance(place, Attribute):
                found.append(self.vocabulary.elements[place.state].attributes[place.attribute])
                continue
            state = place if isinstance(place, State) else place.text_of
            values = self.vocabulary.elements[state].text
            if values.opaque:
                return None
            found.append(values)
        return found

    def children(self, place: Place) -> set[State]:
        if isinstance(place, Document):
            return set(self.vocabulary.roots)
        if isinstance(place, State):
            found = self.vocabulary.elements[place].children
            self.spend(1 + len(found))
            return found
        return set()

    def named(self, test: NameTest) -> list[State]:
        return list(self.vocabulary.named(self.expanded(test)))

    def attributes(self, places: Places) -> set[str]:
        """The names of the attributes that elements of these places have."""
        states: Collection[Place] = self.vocabulary.elements if places is None else places
        self.spend(len(states))
        return {
            name
            for state in states
            if isinstance(state, State)
            for name in self.vocabulary.elements[state].attributes
        }

    def below(self, places: Iterable[Place]) -> set[Place]:
        return self._closure(places, self.children)

    def _anywhere(self, step: Step, test: NameTest) -> Places:
        if step.axis == "namespace":
            return None
        if step.axis == "attribute":
            return frozenset(self._named(self._attributes(self.vocabulary.elements), step, test))
        return frozenset(self._named(self.vocabulary.elements, step, test))

    def _along(self, places: frozenset[Place], step: Step) -> Places:
        match step.axis:
            case "self":
                return places
            case "child":
                return frozenset(child for place in places for child in self.children(place))
            case "descendant":
                return frozenset(self.below(places))
            case "descendant-or-self":
                return places | self.below(places)
            case "parent":
                return frozenset(above for place in places for above in self._above(place))
            case "ancestor":
                return frozenset(self._closure(places, self._above))
            case "ancestor-or-self":
                return places | self._closure(places, self._above)
            case "attribute":
                return frozenset(self._attributes(places))
            case _:
                return None

    def _attributes(self, places: Collection[Place]) -> Collection[Attribute]:
        self.spend(len(places))
        return [
            Attribute(state, name)
            for state in places
            if isinstance(state, State)
            for name in self.vocabulary.elements[state].attributes
        ]

    def _texts(self, places: frozenset[Place], step: Step) -> frozenset[Place]:
        """The places of texts, and of comments and processing instructions."""
        self.spend(len(places))
        above = set(places) if step.axis == "child" else places | self.below(places)
        return frozenset(Text(place) for place in above if isinstance(place, State))

    def _named(self, places: Collection[Place], step: Step, test: NameTest) -> Iterable[Place]:
        self.spend(len(places))
        wanted = self.expanded(test)
        uri = self.uri(test)
        for place in places:
            if isinstance(place, Attribute):
                name = place.attribute
                if step.axis == "attribute" and _fits(name, test, wanted, uri):
                    yield place
            elif (
                isinstance(place, State)
                and step.axis != "attribute"
                and _fits(place.name, test, wanted, uri)
            ):
                yield place

    def _above(self, place: Place) -> set[Place]:
        if isinstance(place, Attribute):
            return {place.state}
        if isinstance(place, Text):
            return {place.text_of}
        if isinstance(place, State):
            found = self._parents.get(place, set())
            self.spend(1 + len(found))
            return found
        return set()

    def _closure(self, places: Iterable[Place], reach: object) -> set[Place]:
        found: set[Place] = set()
        waiting = list(places)
        while waiting:
            for place in reach(waiting.pop()):  # type: ignore[operator]
                if place not in found:
                    found.add(place)
                    waiting.append(place)
        return found


def namespace(name: str) -> str:
    return name[1:].partition("}")[0] if name.startswith("{") else ""


def local(name: str) -> str:
    return name.rpartition("}")[2]


def _fits(name: str, test: NameTest, wanted: str, uri: str) -> bool:
    if test.local != "*":
        return name == wanted
    return test.prefix is None or namespace(name) == uri
