"""Every example of docs/expressions.md, run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tagmill_expressions import documents, evaluation
from tagmill_expressions.definition import check
from tagmill_expressions.errors import DefinitionError

GUIDE = Path(__file__).parents[2].joinpath("docs/expressions.md").read_text()
LIMITS = documents.Limits(bytes=1 << 20, depth=128)

_BLOCK = re.compile(r"^```xml (\w+) (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_VERDICTS = re.compile(r"^\| `(.+)` \| (yes|no) \| (yes|no) \|", re.MULTILINE)
_REFUSALS = re.compile(r"^\| `(.+)` \| (\d+) \|", re.MULTILINE)


def machines() -> dict[str, dict[str, str]]:
    probes: dict[str, dict[str, str]] = {}
    for machine, probe, xml in _BLOCK.findall(GUIDE):
        probes.setdefault(machine, {})[probe] = documents.normalise(xml.encode(), LIMITS)
    return probes


def unescaped(cell: str) -> str:
    return cell.replace("\\|", "|")


def test_the_guide_has_examples() -> None:
    assert machines().keys() == {"list", "node"}
    assert len(_VERDICTS.findall(GUIDE)) > 20
    assert len(_REFUSALS.findall(GUIDE)) > 5


@pytest.mark.parametrize(("cell", "on_list", "on_node"), _VERDICTS.findall(GUIDE))
def test_an_example_is_true_of_the_machines_that_the_guide_says(
    cell: str, on_list: str, on_node: str
) -> None:
    compiled = evaluation.compile(unescaped(cell))
    found = {
        name: compiled.matches(documents.compose(probes)) for name, probes in machines().items()
    }
    assert found == {"list": on_list == "yes", "node": on_node == "yes"}


@pytest.mark.parametrize(("cell", "column"), _REFUSALS.findall(GUIDE))
def test_an_example_is_refused_at_the_column_that_the_guide_says(cell: str, column: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        check(unescaped(cell))
    assert caught.value.column == int(column)
