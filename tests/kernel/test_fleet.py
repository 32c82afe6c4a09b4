from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
import tagmill_kernel
from lxml import etree

from fixtures.generate import generate
from tests.kernel.reference import parse

LINES = Path(__file__).parents[1].joinpath("data/real-xpaths.txt").read_text().splitlines()
PREFIX = re.compile(r"(?<![\w.:-])([A-Za-z_][\w.-]*):(?=[A-Za-z_*])")


def namespaces(text: str) -> dict[str, str]:
    return {prefix: prefix for prefix in PREFIX.findall(re.sub(r'"[^"]*"', '""', text))}


def reference(text: str) -> etree.XPath:
    plain = text.replace("lshw:", "")
    return etree.XPath(f"boolean({plain})", namespaces=namespaces(plain) or None)


def assert_agreement(documents: list[str], lines: list[str]) -> None:
    image = tagmill_kernel.PartitionImage()
    for slot, document in enumerate(documents):
        image.put(slot, {"lshw": document})
    trees = [parse(document) for document in documents]
    expressions = [tagmill_kernel.Expression(line) for line in lines]
    for line, bitmap in zip(lines, image.evaluate(expressions), strict=True):
        compiled = reference(line)
        expected = bytearray(len(bitmap))
        for slot, tree in enumerate(trees):
            expected[slot // 8] |= int(compiled(tree)) << slot % 8
        assert bitmap == bytes(expected), line


def test_every_well_formed_real_expression_compiles_and_no_other() -> None:
    for line in LINES:
        try:
            reference(line)
        except etree.XPathSyntaxError:
            with pytest.raises(tagmill_kernel.KernelRefused):
                tagmill_kernel.Expression(line)
        else:
            tagmill_kernel.Expression(line)


def well_formed() -> list[str]:
    lines = []
    for line in LINES:
        try:
            reference(line)
        except etree.XPathSyntaxError:
            continue
        lines.append(line)
    return lines


@pytest.mark.proof
def test_real_expressions_agree_on_a_thousand_generated_documents() -> None:
    fleet = generate(1000, 11, "lean")
    assert_agreement([node.probes["lshw"] for node in fleet], well_formed())


@pytest.mark.proof
def test_mutated_real_expressions_agree_on_generated_documents() -> None:
    rng = Random(5)
    # Where a mutation made `//node//node`, lxml's time grows with the square of a document.
    nodes = [*generate(32, 12, "lean"), *generate(8, 12, "server")]
    real, lines = well_formed(), []
    while len(lines) < 300:
        line = rng.choice(real)
        for old, new in rng.sample(
            [
                ("//node", "//node[2]"), ("//node", "//*"), ("node[", "node[position() < 3]["),
                ("/vendor", "/*"), ("/vendor", "//vendor"), ("//node", "/list/node"), ("=", "!="),
                (" and ", " or "), ("contains", "starts-with"), ("count", "sum"), ("sum", "count"),
                ("/size", "/size/.."), ("//node", "//node/.."), ("[@id", "[../@id"), (" > ", " < "),
                ("//node", "//node//node"), ("/product", "/text()"), ("/capabilities", "//*"),
                ("//node", "//node/node"), ("@id", "@class"), ("text()", "normalize-space()"),
            ],
            3,
        ):  # fmt: skip
            line = line.replace(old, new, rng.choice([-1, 1]))
        try:
            reference(line)
            tagmill_kernel.Expression(line)
        except (etree.XPathSyntaxError, tagmill_kernel.KernelRefused):
            continue
        if line not in lines:
            lines.append(line)
    assert_agreement([node.probes["lshw"] for node in nodes], lines)


def test_real_expressions_agree_on_what_lshw_prints() -> None:
    printed = [(Path(__file__).resolve().parents[2] / "kernel/tests/data/lshw.xml").read_bytes()]
    if shutil.which("lshw"):
        command = ["lshw", "-xml", "-quiet"]
        printed.append(subprocess.run(command, capture_output=True, check=True).stdout)
    assert_agreement([document.decode() for document in printed], well_formed())
