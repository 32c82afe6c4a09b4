"""The words of comments and names: sentences that stand alone, and the terms of the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "workers", "api", "fixtures", "loadtest", "kernel/src", "kernel/tests", "tests")
FILES = [
    path
    for folder in FOLDERS
    for suffix in ("py", "sql", "rs")
    for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    if path != Path(__file__).resolve()
]
# A comment that begins so ends a sentence that begins elsewhere.
FRAGMENT = re.compile(
    r'^\s*(?:r?"""|# |-- |///? |//! )'
    r"(?:Of|That of|Those of|Those that|For one of|Their|As for|In a thread|So many) ",
    re.M,
)
# What is to be said instead of words that only this project used.
TERMS = {
    "delete, tombstone": re.compile(r"bury|buries|buried", re.I),
    "quota": re.compile(r"\b_?ow(?:e|es|ed)\b|\bowe_|_owe\b", re.I),
    "Explanation": re.compile(r"\bTold\b"),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_comment_needs_its_neighbour_to_be_understood(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group().strip()}"
        for path in FILES
        if path.is_relative_to(ROOT / folder)
        for match in FRAGMENT.finditer(path.read_text())
    ]
    assert not found


@pytest.mark.parametrize("term", TERMS)
def test_code_uses_the_terms_of_the_field(term: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in FILES
        for match in TERMS[term].finditer(path.read_text())
    ]
    assert not found, f"write {term}"


def test_each_class_of_a_plan_an_expression_or_an_evaluator_has_a_name_of_its_own() -> None:
    """The kernel's class `Expression` is public, with versions of its own, and keeps its name."""
    classes = [
        name
        for path in FILES
        if path.suffix == ".py" and "tests" not in path.parts
        for name in re.findall(
            r"^class (\w*(?:Plan|Expression|Evaluator|Options))\b", path.read_text(), re.M
        )
    ]
    assert len(classes) == len(set(classes)), sorted(classes)
