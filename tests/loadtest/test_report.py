from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lxml import etree, html

from loadtest.bench import BenchError
from loadtest.report.report import SECTIONS, load_results, page
from tests.loadtest.conftest import ROOT

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def whole() -> str:
    return page(load_results(DATA))


def test_every_bench_has_its_section_with_a_table(whole: str) -> None:
    tree = html.fromstring(whole)
    assert [section.get("id") for section in tree.iter("section")] == list(SECTIONS)
    for section in tree.iter("section"):
        assert section.findall(".//table"), section.get("id")
        if section.get("id") != "calibrate":
            assert section.findall(".//figure/svg"), section.get("id")


def test_the_page_loads_nothing(whole: str) -> None:
    tree = html.fromstring(whole)
    assert not tree.xpath("//script | //link | //img | //iframe | //image")
    assert "@import" not in whole
    assert not tree.xpath("//@src")
    assert not [link for link in tree.xpath("//@href") if not link.startswith("#")]


def test_charts_are_well_formed_and_take_the_pages_ink(whole: str) -> None:
    ids: list[str] = []
    for chart in whole.split("<figure>")[1:]:
        svg = etree.fromstring(chart.split("</figure>")[0].strip())
        ids += svg.xpath("//@id")
        text = etree.tostring(svg, encoding="unicode")
        assert "currentColor" in text
        assert "#000000" not in text
    assert len(ids) == len(set(ids))


def test_the_same_figures_make_the_same_page(whole: str) -> None:
    assert page(load_results(DATA)) == whole


@pytest.mark.parametrize("kind", list(SECTIONS))
def test_any_bench_alone_makes_a_page(kind: str, tmp_path: Path) -> None:
    shutil.copy(DATA / f"{kind}.json", tmp_path)
    text = page(load_results(tmp_path))
    assert [section.get("id") for section in html.fromstring(text).iter("section")] == [kind]
    assert "Not measured here" in text


def test_text_from_a_file_is_escaped(tmp_path: Path) -> None:
    result = json.loads((DATA / "fleet.json").read_text())
    result["bottleneck"] = "<script>alert(1)</script>"
    (tmp_path / "fleet.json").write_text(json.dumps(result))
    assert "<script>" not in page(load_results(tmp_path))


def test_a_directory_without_figures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(BenchError, match="no JSON file"):
        load_results(tmp_path)
    (tmp_path / "other.json").write_text("[")
    with pytest.raises(BenchError, match=r"other\.json"):
        load_results(tmp_path)


def test_matplotlib_is_imported_by_nothing_but_a_chart() -> None:
    code = (
        "import sys, django; django.setup();"
        "import loadtest.management.commands.bench, loadtest.management.commands.capacity;"
        "sys.exit('matplotlib' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
