"""What lxml says, in the form in which the kernel says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tagmill_kernel
from lxml import etree


def parser() -> etree.XMLParser:
    return etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)


def parse(document: str | bytes) -> etree._ElementTree:
    data = document.encode() if isinstance(document, str) else document
    return etree.ElementTree(etree.fromstring(data, parser()))


def verdict(expression: str, namespaces: Mapping[str, str], tree: etree._ElementTree) -> bool:
    """``boolean(expression)`` on the document node."""
    return bool(etree.XPath(f"boolean({expression})", namespaces=dict(namespaces) or None)(tree))


def disagreements(
    documents: Sequence[str], expressions: Sequence[str], namespaces: Mapping[str, str]
) -> list[str]:
    """Every (document, expression) on which the kernel and lxml differ, told in full."""
    image = tagmill_kernel.PartitionImage()
    for slot, document in enumerate(documents):
        image.put(slot, {"lshw": document.encode()})
    trees = [parse(document) for document in documents]
    compiled = [tagmill_kernel.Expression(text, dict(namespaces)) for text in expressions]
    single = bytes([1])
    differ = []
    for text, expression, members in zip(
        expressions, compiled, image.evaluate(compiled), strict=True
    ):
        reference = etree.XPath(f"boolean({text})", namespaces=dict(namespaces))
        (first,) = image.evaluate([expression], single)
        if (first[0] & 1) != (members[0] & 1):
            differ.append(f"{text} on one slot: {first!r}, on all: {members!r}")
        for slot, (document, tree) in enumerate(zip(documents, trees, strict=True)):
            expected = reference(tree)
            actual = bool(members[slot // 8] >> (slot % 8) & 1)
            if actual != expected:
                differ.append(f"{text} on {document}: lxml {expected}, kernel {actual}")
    return differ
