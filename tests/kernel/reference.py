"""What lxml says, in the form in which the kernel says it."""

from __future__ import annotations

import time
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
    documents: Sequence[str],
    expressions: Sequence[str],
    namespaces: Mapping[str, str],
    budget_steps: int = 2**64 - 1,
    patience: float = float("inf"),
) -> list[str]:
    """Every (document, expression) on which the kernel and lxml differ, told in full.

    Expressions beyond the budget are left out, and larger documents once lxml has taken more seconds than
    `patience` for one: its time may grow with the cube of a document's size.
    """
    image = tagmill_kernel.PartitionImage()
    for slot, document in enumerate(documents):
        image.put(slot, {"lshw": document.encode()})
    trees = [parse(document) for document in documents]
    compiled = [tagmill_kernel.Expression(text, dict(namespaces)) for text in expressions]
    # A path is answered in another way for all documents than for one of them.
    singles = sorted({0, len(documents) - 1})
    differ = []
    for text, expression, members in zip(
        expressions, compiled, image.evaluate(compiled, None, budget_steps), strict=True
    ):
        if isinstance(members, tagmill_kernel.BudgetExceeded):
            continue
        reference = etree.XPath(f"boolean({text})", namespaces=dict(namespaces))
        for slot in singles:
            place, bit = slot // 8, 1 << slot % 8
            (alone,) = image.evaluate([expression], bytes([0] * place + [bit]))
            if alone[place] != members[place] & bit:
                differ.append(f"{text} on slot {slot}: {alone!r}, on all: {members!r}")
        by_size = sorted(range(len(documents)), key=lambda slot: len(documents[slot]))
        for slot in by_size:
            document, started = documents[slot], time.perf_counter()
            expected = reference(trees[slot])
            actual = bool(members[slot // 8] >> (slot % 8) & 1)
            if actual != expected:
                differ.append(f"{text} on {document}: lxml {expected}, kernel {actual}")
            if time.perf_counter() - started > patience:
                break
    return differ
