"""The site of `make docs`: every page has its place, and every link leads to a page."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tagmill.program import ROOT


@pytest.fixture(scope="module")
def build_site() -> ModuleType:
    spec = spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def site(build_site: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    build_site.gather(folder)
    return folder


def test_every_page_has_one_place_in_the_order(site: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"^ +- (?:[\w ]+: )?([\w/.-]+\.md)$", text, re.M)
    apart = re.compile(r"docs/(decisions/0|performance/README)")
    there = [str(path.relative_to(site)) for path in site.rglob("*.md")]
    assert sorted(listed) == sorted(name for name in there if not apart.match(name))


def test_every_link_leads_to_a_file_of_the_site(site: Path, build_site: ModuleType) -> None:
    for page in site.rglob("*.md"):
        for target, _anchor in build_site.LINK.findall(page.read_text()):
            assert "://" in target or (page.parent / target).is_file(), (page, target)


def test_commands_and_operations_are_generated(site: Path) -> None:
    said = (site / "reference" / "commands.md").read_text()
    assert "## serve\n" in said and "--processes N" in said and "## bench chaos\n" in said
    assert "--force-color" not in said
    rows = (site / "reference" / "operations.md").read_text()
    assert "| `/api/v1/tags/` | POST |" in rows
    assert "| `/api/v1/workers/lease` | POST |" in rows
