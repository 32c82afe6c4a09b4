"""Documents: checked at upload, kept as text, composed for evaluation.

Everything that comes from outside passes `normalise` once. What it returns is trusted afterwards:
`compose` only repeats the refusal of entities and of the network.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lxml import etree

from tagmill_expressions.encoding import decode, position, refuse
from tagmill_expressions.errors import DocumentError, DocumentTooLarge
from tagmill_expressions.lexer import ILLEGAL, NCNAME

_are_plain: Callable[[Sequence[str], int], list[bool]] | None = None
try:
    import tagmill_kernel
except ImportError:
    pass
else:
    # One that was installed with an earlier release does not have it.
    _are_plain = getattr(tagmill_kernel, "are_plain", None)

MAIN_PROBE = "lshw"
"""The probe whose root is the document's, in no namespace."""

# Without `huge_tree`, libxml2 refuses deeper elements and longer text nodes or attribute values.
_LIBXML2_DEPTH = 255
_LIBXML2_TEXT_BYTES = 10_000_000

# What may stand before the root, other than a DOCTYPE. Possessive: a million comments leave no
# million places to come back to.
_PROLOG = re.compile(r"(?>[ \t\r\n]++|<!--.*?-->|<\?.*?\?>)*+", re.DOTALL)
# Parts of a DOCTYPE.
_S = "[ \t\r\n]"
_LITERAL = """(?:"[^"]*"|'[^']*')"""
_PUBLIC = r"""(?:"[-'()+,./:=?;!*#@$%\w \r\n]*"|'[-()+,./:=?;!*#@$%\w \r\n]*')"""
_NOT_LINES = re.compile("[^\n]++")
_DECLARES = (
    "a DOCTYPE may name a file, which is not read, and nothing else: remove it, with its entities"
)
_NAME = re.compile(r"<[^\s/>]+")


@functools.cache
def _doctype() -> re.Pattern[str]:
    """A DOCTYPE that declares nothing itself, as `lstopo` and `nvidia-smi` print it. Compiled for
    the first one: that takes 10 ms, which no start of a process should."""
    return re.compile(
        rf"<!DOCTYPE{_S}++{NCNAME.pattern}(?::{NCNAME.pattern})?"
        rf"(?:{_S}++(?:SYSTEM|PUBLIC{_S}++{_PUBLIC}){_S}++{_LITERAL})?{_S}*+>",
        re.ASCII,
    )


@dataclass(frozen=True)
class Limits:
    bytes: int
    """The size of the document as it is uploaded."""
    depth: int
    """How deep elements may nest; the root is at 1."""
    nodes: int = 400_000
    """The number of elements, texts and comments, and of attributes, which count twice; an upper
    bound. A node takes libxml2 up to 200 bytes."""


def parse(data: bytes, limits: Limits) -> etree._Element:
    """The root of a document from outside. Raises DocumentError or DocumentTooLarge.

    Refused: a DOCTYPE that declares anything (so there are no entities to expand), any namespace
    error, more bytes, nodes or nesting than the limits allow. Nothing is ever fetched.
    """
    found = unparsed(data, limits)
    return _parse(found.text, found.start, found.doctype, limits)


@dataclass(frozen=True)
class Unparsed:
    """A document from outside, of which all is known that can be told without a tree."""

    text: str
    start: int
    doctype: tuple[int, int]
    limits: Limits

    def check(self) -> None:
        """Raises as `parse` does, with line and column of the uploaded document. Whether it does
        depends on what is kept alone: what was kept before needs no check."""
        _parse(self.text, self.start, self.doctype, self.limits)

    def kept(self) -> str:
        """The text to keep: what was uploaded, without byte order mark, XML declaration and
        DOCTYPE, of which the line ends stay: a line has the number that it has in what was
        uploaded."""
        text, start, doctype = self.text, self.start, self.doctype
        if not start and doctype[0] == doctype[1]:
            return text
        above, between = text.count("\n", 0, start), text.count("\n", *doctype)
        return "\n" * above + text[start : doctype[0]] + "\n" * between + text[doctype[1] :]


def unparsed(data: bytes | str, limits: Limits) -> Unparsed:
    """Raises DocumentError or DocumentTooLarge for what needs no parser. Text is taken as the same
    document in UTF-8."""
    if isinstance(data, str):
        if not data.isascii() or data.startswith("<?xml") or "\0" in data:
            return unparsed(data.encode(), limits)
        # What is ASCII and declares nothing is its own text.
        _refuse_long(len(data), limits)
        return Unparsed(*_accepted(data, 0, limits), limits)
    _refuse_long(len(data), limits)
    return Unparsed(*_accepted(*decode(data), limits), limits)


def surely_parse(kept: Sequence[str], limits: Limits) -> Sequence[bool]:
    """For each text to keep whether `Unparsed.check` surely accepts its document: the kernel is
    asked, where it is installed, in a tenth of the time that lxml takes. False says nothing."""
    if _are_plain is None or not kept:
        return [False] * len(kept)
    try:
        return _are_plain(kept, limits.depth)
    except BaseException as error:
        # A panic of the kernel is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        return [False] * len(kept)


def normalise(data: bytes, limits: Limits) -> str:
    """The text to keep of a document that is checked. Raises as `parse` does."""
    found = unparsed(data, limits)
    # The tree is gone before the text is copied: both are large.
    found.check()
    return found.kept()


def compose(probes: Mapping[str, str]) -> etree._ElementTree:
    """The one document of a node, from the normalised text of each of its probes.

    `lshw` gives the root, an empty `<list/>` where a node has none. The roots of the others become
    the root's last children, in the order of the probes' names. Those of their elements that are
    in no namespace move to the namespace that bears the probe's name; attributes stay as they are.
    Comments around those roots are left out. A probe's name is `[a-z][a-z0-9_-]*`.
    """
    main = probes.get(MAIN_PROBE)
    root = etree.Element("list") if main is None else _trusted(main)
    if len(probes) > (main is not None):
        for probe in sorted(probes):
            if probe != MAIN_PROBE:
                root.append(_in_namespace(probes[probe], probe))
    return root.getroottree()


def composition(probes: Mapping[str, str]) -> dict[str, bytes | str]:
    """What the kernel is given for the document that `compose` makes."""
    others = sorted(probes.keys() - {MAIN_PROBE})
    return {
        MAIN_PROBE: probes.get(MAIN_PROBE, "<list/>"),
        **{name: probes[name] for name in others},
    }


def compose_xml(probes: Mapping[str, str]) -> str:
    """`compose` as text, without an XML declaration."""
    if probes.keys() == {MAIN_PROBE}:
        return probes[MAIN_PROBE]
    return etree.tostring(compose(probes), encoding="unicode")


def _refuse_long(size: int, limits: Limits) -> None:
    if size > limits.bytes:
        message = f"the document has {size:,} bytes, more than the limit of {limits.bytes:,}"
        raise DocumentTooLarge(message, limits.bytes)


def _accepted(text: str, start: int, limits: Limits) -> tuple[str, int, tuple[int, int]]:
    """The text, where it begins behind the declaration, and where its DOCTYPE lies.

    All that can be told without a tree, which takes up to fifty times the bytes.
    """
    end = _skip_prolog(text, start)
    if end == len(text):
        refuse("the document is empty: it needs a root element", text, 0)
    doctype = end, end
    if text.startswith("<!DOCTYPE", end):
        found = _doctype().match(text, end)
        if found is None or ILLEGAL.search(text, *found.span()):
            refuse(_DECLARES, text, end)
        doctype = found.span()
        again = _skip_prolog(text, doctype[1])
        if text.startswith("<!DOCTYPE", again):
            refuse("a second DOCTYPE: remove it", text, again)
    # Each takes a character, and attributes count twice: most documents need not be counted.
    nodes = count_nodes(text) if 2 * len(text) > limits.nodes else 0
    if nodes > limits.nodes:
        message = (
            f"the document has up to {nodes:,} nodes, more than the limit of {limits.nodes:,}: "
            "leave out what no tag asks for"
        )
        raise DocumentTooLarge(message, limits.nodes)
    return text, start, doctype


def _skip_prolog(text: str, start: int) -> int:
    prolog = _PROLOG.match(text, start)
    return prolog.end() if prolog else start


def count_nodes(text: str) -> int:
    """An upper bound of the nodes in a tree of the text. Namespace declarations are attributes."""
    markup = text.count("<")
    opening, texts = markup - text.count("</"), markup - text.count("><")
    attributes = min(text.count("="), (text.count('"') + text.count("'")) // 2)
    return opening + texts + 2 * attributes


def _parse(text: str, start: int, doctype: tuple[int, int], limits: Limits) -> etree._Element:
    # Blanks in place of what is dropped keep the lines and columns that libxml2 tells.
    kept = text[start : doctype[0]].encode(), text[doctype[1] :].encode()
    blanks = _blank(text[:start]).encode(), _blank(text[slice(*doctype)]).encode()
    huge = limits.depth > _LIBXML2_DEPTH or limits.bytes > _LIBXML2_TEXT_BYTES
    parser = _parser(huge)
    try:
        root = etree.fromstring(b"".join((blanks[0], kept[0], blanks[1], kept[1])), parser)
    except etree.XMLSyntaxError:
        _check_log(parser, text, limits)
        raise
    # libxml2 goes on after some namespace errors, and other readers do not.
    _check_log(parser, text, limits)
    if root.getroottree().docinfo.internalDTD is not None:
        raise DocumentError(_DECLARES, None, None)  # out of sight above: never seen
    _check_depth(root, limits.depth)
    return root


def _blank(text: str) -> str:
    return _NOT_LINES.sub(lambda found: " " * len(found[0]), text)


def _parser(huge: bool) -> etree.XMLParser:
    """A new one each time (1 us): threads that share a parser would wait for each other."""
    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=huge,
    )


def _check_depth(root: etree._Element, limit: int) -> None:
    # In libxml2, level by level: a walk in Python takes ten times as long.
    deeper = "/" + "/".join("*" * (limit + 1))
    if etree.XPath(f"boolean({deeper})")(root):
        first: Any = etree.XPath(f"({deeper})[1]")(root)
        raise _too_deep(limit, first[0].sourceline, None)


def _too_deep(limit: int, line: int | None, column: int | None) -> DocumentError:
    return DocumentError(f"elements are nested deeper than the limit of {limit}", line, column)


def _check_log(parser: etree.XMLParser, text: str, limits: Limits) -> None:
    """Raises the first error that libxml2 met."""
    entry = next((e for e in parser.error_log if e.level >= etree.ErrorLevels.ERROR), None)
    if entry is None:
        return
    # libxml2 may tell a position past the end when it runs out of text.
    line, column = min((max(entry.line, 1), max(entry.column, 1)), position(text, len(text)))
    message = entry.message.strip()
    if "XML_PARSE_HUGE" in message and "depth" in message.lower():
        raise _too_deep(limits.depth, line, column) from None
    if "XML_PARSE_HUGE" in message or entry.type_name == "ERR_NAME_TOO_LONG":
        message = "a name, a text or an attribute value is longer than the parser accepts"
        raise DocumentError(message, line, column) from None
    raise DocumentError(f"not well-formed XML: {message}", line, column) from None


def _trusted(text: str) -> etree._Element:
    # `huge_tree`: what upload accepted under its limits must never fail here.
    return etree.fromstring(text.encode(), _parser(huge=True))


def _in_namespace(text: str, probe: str) -> etree._Element:
    """The root of a probe other than `lshw`."""
    if "xmlns" not in text:
        # A default namespace on the root does it in the parser, in every element.
        prolog = _PROLOG.match(text)
        name = _NAME.match(text, prolog.end() if prolog else 0)
        if name:
            text = f'{text[: name.end()]} xmlns="{probe}"{text[name.end() :]}'
        return _trusted(text)
    root = _trusted(text)
    for element in list(root.iter("{}*")):
        element.tag = f"{{{probe}}}{element.tag}"
    return root
