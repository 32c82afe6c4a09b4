"""Links between the project's own pages, and the paths that they name, lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "kernel" / "README.md"]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), target


# A path in code marks: below a directory at the top, or, in the kernel's page, below its sources.
NAMED = re.compile(r"`([\w.-]+(?:/[\w.*-]+)*/(?:[\w.*-]+\.\w+)?)`")
TOP = {path.name for path in ROOT.iterdir() if path.is_dir()}
# The changelog names what was there once.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]


def named_paths(page: Path) -> list[str]:
    return [
        path
        for path in re.findall(NAMED, page.read_text())
        if path.split("/")[0] in TOP or Path(path).suffix in (".py", ".rs", ".sql")
    ]


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    for path in named_paths(page):
        below = [ROOT, page.parent, page.parent / "src"]
        assert any((start / path).exists() for start in below), path


def test_the_architecture_names_the_file_of_each_step() -> None:
    assert len(named_paths(ROOT / "ARCHITECTURE.md")) > 60
    for step in re.findall(r"^\d+\. .*(?:\n   .*)*", (ROOT / "ARCHITECTURE.md").read_text(), re.M):
        assert re.search(NAMED, step) or step.startswith("4. It raises"), step
