"""What a fleet's documents contain, bounded: names, where they stand, and the values they bear.

Lint reads it to say that no document has something, so what it keeps is exact or says that it is
not: a set of values that outgrows its bound becomes a Bloom filter, which still knows most absent
values and takes no present one for absent; documents with absurdly many names make the whole
vocabulary `open`, and lint silent.

Every bound is on something that only grows with the documents. So a vocabulary is the same in
whatever order, and in whatever partitions, its documents were added.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import orjson
from lxml import etree

VERSION = 1

MAX_VALUES = 1_000
"""Distinct values kept per attribute of an element. lshw knows some 500 capabilities and settings;
hostnames, serials and addresses have no end."""

MAX_LENGTH = 100
"""The length of a value that is kept, in characters. Nobody compares with longer prose."""

MAX_KEPT = 50_000
"""Values in all, and names in all, before the vocabulary is open: 5 MB. A fleet has 5,000."""

# 32 kB per filter, compressed to a third for one partition. Of 10,000 values it takes 1 in 180
# absent ones for present, of 100,000 one in 4.
_FILTER_BITS = 1 << 18
# Leaves as many bits of a CRC as make a number of a bit.
_FILTER_SHIFT = 32 - 18

# With the exponent that libxml2 reads and XPath 1.0 does not know.
_NUMBER = re.compile(r"[ \t\r\n]*-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]*)?[ \t\r\n]*")


class State(NamedTuple):
    """Elements of one expanded name, told apart by whether one of the same name is around them.

    lshw's outermost `node` is the machine, with its hostname for an id; the nested are its parts.
    """

    name: str
    nested: bool


@dataclass
class Values:
    """The values of one attribute of a state, or of its text."""

    kept: dict[str, int] | None = field(default_factory=dict)
    """Value to the number of documents that have it; None where there are too many."""
    filter: int = 0
    """The Bloom filter, of what was kept before and what came after, once `kept` is None."""
    has_long: bool = False
    has_number: bool = False
    has_text: bool = False
    """A value that is no number to XPath."""
    opaque: bool = False
    """Text of elements that have children: their string value is not kept."""

    def may_have(self, value: str) -> bool:
        """False only when no document has it."""
        if self.opaque or len(value) > MAX_LENGTH:
            return self.opaque or self.has_long
        if self.kept is not None:
            return value in self.kept
        wanted = _filter_of(value)
        return self.filter & wanted == wanted

    @property
    def listed(self) -> bool:
        """Every value is in `kept`."""
        return self.kept is not None and not self.has_long and not self.opaque

    @property
    def weight(self) -> int:
        return MAX_VALUES if self.kept is None else len(self.kept)

    def add(self, value: str, documents: int = 1) -> None:
        if self.kept is not None and value in self.kept:
            self.kept[value] += documents
            return
        if is_number(value):
            self.has_number = True
        else:
            self.has_text = True
        if len(value) > MAX_LENGTH:
            self.has_long = True
        elif self.kept is None:
            self.filter |= _filter_of(value)
        else:
            self.kept[value] = documents
            if len(self.kept) > MAX_VALUES:
                self._overflow()

    def merge(self, other: Self) -> None:
        if other.kept is None:
            self._overflow()
            self.filter |= other.filter
        elif self.kept is None:
            self.filter |= filter_of(other.kept)
        else:
            for value, documents in other.kept.items():
                self.kept[value] = self.kept.get(value, 0) + documents
            if len(self.kept) > MAX_VALUES:
                self._overflow()
        self.has_long |= other.has_long
        self.has_number |= other.has_number
        self.has_text |= other.has_text
        self.opaque |= other.opaque

    def _overflow(self) -> None:
        self.filter |= filter_of(self.kept or ())
        self.kept = None


@dataclass
class Element:
    """What is known of the elements of a state."""

    documents: int = 0
    """How many have one."""
    children: set[State] = field(default_factory=set)
    attributes: dict[str, Values] = field(default_factory=dict)
    text: Values = field(default_factory=Values)

    @property
    def weight(self) -> int:
        """The names and values in it."""
        kept = 1 + len(self.children) + len(self.attributes) + self.text.weight
        return kept + sum(values.weight for values in self.attributes.values())

    def take(self, found: _Found) -> None:
        """What one document has of the state."""
        self.documents += 1
        self.children |= found.children
        self.text.opaque |= found.opaque
        for value in found.texts:
            self.text.add(value)
        for name, value in found.attributes:
            values = self.attributes.get(name)
            if values is None:
                values = self.attributes[name] = Values()
            values.add(value)

    def merge(self, other: Self) -> None:
        self.documents += other.documents
        self.children |= other.children
        for name, values in other.attributes.items():
            self.attributes.setdefault(name, Values()).merge(values)
        self.text.merge(other.text)


class Vocabulary:
    """What documents contain. It is not thread-safe while it changes."""

    def __init__(self) -> None:
        self.documents = 0
        self.open = False
        """More than it could keep: nothing is known."""
        self.roots: dict[State, int] = {}
        """The states of root elements, with the number of documents."""
        self.elements: dict[State, Element] = {}

    @classmethod
    def of(cls, trees: Iterable[etree._ElementTree | etree._Element]) -> Vocabulary:
        vocabulary = cls()
        for tree in trees:
            vocabulary.add(tree)
        return vocabulary

    def add(self, tree: etree._ElementTree | etree._Element) -> None:
        """One node's document, as `documents.compose` makes it."""
        self.documents += 1
        if self.open:
            return
        root = tree.getroot() if isinstance(tree, etree._ElementTree) else tree
        first = State(str(root.tag), False)
        self.roots[first] = self.roots.get(first, 0) + 1
        for state, found in _collect(root, first).items():
            element = self.elements.get(state)
            if element is None:
                element = self.elements[state] = Element()
            element.take(found)
        self._check_size()

    def merge(self, other: Vocabulary) -> None:
        """Takes in the vocabulary of other documents."""
        self.documents += other.documents
        self.open |= other.open
        if self.open:
            self._clear()
            return
        for state, documents in other.roots.items():
            self.roots[state] = self.roots.get(state, 0) + documents
        for state, element in other.elements.items():
            self.elements.setdefault(state, Element()).merge(element)
        self._check_size()

    def _check_size(self) -> None:
        if sum(element.weight for element in self.elements.values()) > MAX_KEPT:
            self.open = True
            self._clear()

    def _clear(self) -> None:
        self.roots, self.elements = {}, {}

    def dump(self) -> bytes:
        """JSON: the same bytes for the same documents."""
        content = {
            "version": VERSION,
            "documents": self.documents,
            "open": self.open,
            "roots": [[*state, documents] for state, documents in sorted(self.roots.items())],
            "elements": [
                {
                    "name": state.name,
                    "nested": state.nested,
                    "documents": element.documents,
                    "children": [list(child) for child in sorted(element.children)],
                    "attributes": {
                        name: _dumped(values) for name, values in element.attributes.items()
                    },
                    "text": _dumped(element.text),
                }
                for state, element in sorted(self.elements.items())
            ],
        }
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def load(cls, data: bytes) -> Vocabulary:
        """What `dump` gave. Raises ValueError for that of another version, or with more than can
        be kept."""
        content = orjson.loads(data)
        if content["version"] != VERSION:
            raise ValueError(f"the vocabulary has version {content['version']}, not {VERSION}")
        vocabulary = cls()
        vocabulary.documents, vocabulary.open = content["documents"], content["open"]
        vocabulary.roots = {
            State(name, nested): documents for name, nested, documents in content["roots"]
        }
        kept = 0
        for found in content["elements"]:
            element = Element(
                documents=found["documents"],
                children={State(*child) for child in found["children"]},
                attributes={n: _loaded(values) for n, values in found["attributes"].items()},
                text=_loaded(found["text"]),
            )
            kept += element.weight
            if kept > MAX_KEPT:
                raise ValueError(f"more than {MAX_KEPT:,} names and values")
            vocabulary.elements[State(found["name"], found["nested"])] = element
        return vocabulary

    def named(self, name: str) -> Iterator[State]:
        return (
            state for state in (State(name, False), State(name, True)) if state in self.elements
        )


class _Found:
    """What was found of one state in one document."""

    __slots__ = ("attributes", "children", "opaque", "texts")

    def __init__(self) -> None:
        self.attributes: set[tuple[str, str]] = set()
        self.children: set[State] = set()
        self.opaque = False
        self.texts: set[str] = set()


def _collect(root: etree._Element, first: State) -> dict[State, _Found]:
    """Iterative: documents may nest as deep as the limit of a deployment says."""
    found: dict[State, _Found] = {first: _Found()}
    states: dict[tuple[str, bool], State] = {}
    waiting: list[tuple[Any, State, frozenset[str]]] = [(root, first, frozenset([first.name]))]
    while waiting:
        xml, state, above = waiting.pop()
        here = found[state]
        here.attributes.update(xml.items())
        if not len(xml):
            here.texts.add(xml.text or "")
            continue
        here.opaque = True
        for child in xml.iterchildren("*"):
            name = child.tag
            nested = name in above
            below = states.get((name, nested))
            if below is None:
                below = states[name, nested] = State(name, nested)
                found.setdefault(below, _Found())
            here.children.add(below)
            waiting.append((child, below, above if nested else above | {name}))
    return found


def is_number(text: str) -> bool:
    """Whether libxml2's number() gives anything but NaN."""
    return _NUMBER.fullmatch(text) is not None


def to_number(text: str) -> float:
    """The number that a text is. Relies on: `is_number(text)`."""
    return float(text.strip().rstrip("eE+-"))


def filter_of(values: Iterable[str]) -> int:
    """The Bloom filter of these values: of each, both ends of its CRC."""
    bits = bytearray(_FILTER_BITS // 8)
    for value in values:
        crc = zlib.crc32(value.encode())
        low, high = crc % _FILTER_BITS, crc >> _FILTER_SHIFT
        bits[low >> 3] |= 1 << (low & 7)
        bits[high >> 3] |= 1 << (high & 7)
    return int.from_bytes(bits, "little")


def _filter_of(value: str) -> int:
    crc = zlib.crc32(value.encode())
    return 1 << crc % _FILTER_BITS | 1 << (crc >> _FILTER_SHIFT)


def _dumped(values: Values) -> dict[str, Any]:
    content: dict[str, Any] = {
        name: True
        for name in ("has_long", "has_number", "has_text", "opaque")
        if getattr(values, name)
    }
    if values.kept is None:
        packed = zlib.compress(values.filter.to_bytes(_FILTER_BITS // 8, "big"), 1)
        content["filter"] = base64.b64encode(packed).decode()
    elif values.kept:
        content["kept"] = values.kept
    return content


def _loaded(content: dict[str, Any]) -> Values:
    packed = content.pop("filter", None)
    if packed is None:
        return Values(**content)
    size = _FILTER_BITS // 8
    # Another process made it, and a kilobyte can hold a megabyte.
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(base64.b64decode(packed), size + 1)
    if len(unpacked) != size or not unpacker.eof:
        raise ValueError(f"a filter that has not {size} bytes")
    return Values(kept=None, filter=int.from_bytes(unpacked, "big"), **content)
