"""Every example of docs/lint.md, run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tagmill_expressions.lint import CODES
from tests.expressions.test_lint_fleet import warnings

GUIDE = Path(__file__).parents[2].joinpath("docs/lint.md").read_text()
EXAMPLES = re.findall(r"^\| `(\w+)` \| `(.+?)` \| (\d+) \| (?:`(.+)` )?\|$", GUIDE, re.MULTILINE)


def test_each_code_has_an_example_and_a_meaning() -> None:
    assert {code for code, *_ in EXAMPLES} == set(CODES)
    assert set(re.findall(r"\*\*(\w+)\*\*", GUIDE)) - {"vocabulary"} >= set(CODES)


@pytest.mark.parametrize(("code", "text", "column", "rewrite"), EXAMPLES)
def test_an_example_gets_the_one_warning_that_the_guide_says(
    code: str, text: str, column: str, rewrite: str
) -> None:
    # What a chain compares may be wrong as well.
    (warning,) = (w for w in warnings(text) if w.code != "element_is_attribute" or w.code == code)
    assert (warning.code, warning.column) == (code, int(column))
    assert warning.rewrite == (rewrite.replace("\\|", "|") or None)


@pytest.mark.parametrize("rewrite", [rewrite for *_, rewrite in EXAMPLES if rewrite])
def test_a_rewrite_of_the_guide_gets_no_warning(rewrite: str) -> None:
    # That every machine of the fleet has a network card is no fault of the rewrite.
    found = [w.code for w in warnings(rewrite.replace("\\|", "|"))]
    assert set(found) <= {"matches_every_node"}
