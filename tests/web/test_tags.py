"""The page of all tags."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tagmill.tags import tags
from tests.support.workers import a_worker, work
from tests.web.conftest import Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def some(stack: object) -> None:
    tags.create("gpu", definition="//node[@class='display']", comment="has a display")
    tags.create("any", definition="//node")
    tags.create("mine")
    work(a_worker())


def test_tags_are_listed_searched_and_filtered(some: None, sit: Callable[..., Seat]) -> None:
    seat = sit()
    page = seat.see("/")
    row = page.get_by_role("row").filter(has_text="any")
    expect(row).to_contain_text("60")
    expect(row).to_contain_text("100%")
    expect(row.get_by_text("ready")).to_be_visible()
    seat.is_accessible()
    page.get_by_role("searchbox").fill("display")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Manual").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("assigned by hand")


def test_a_rebuild_of_all_moves_its_bar(some: None, sit: Callable[..., Seat]) -> None:
    page = sit().see("/")
    page.get_by_role("checkbox", name="Select all shown").check()
    page.get_by_role("button", name="Rebuild 2").click()
    bar = page.get_by_role("progressbar", name="Rebuild of any, gpu")
    expect(bar).to_have_js_property("value", 0)
    work(a_worker(name="another"))
    expect(bar).to_have_js_property("value", 2)
    expect(page.get_by_label("Rebuilds")).to_contain_text("complete")
