"""The workbench by keyboard alone, and with a thousand tags."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tagmill.tags import tags
from tagmill.tags.models import Preview, Tag
from tests.support.fleet import tag
from tests.support.threads import until
from tests.support.workers import a_worker, work
from tests.web.conftest import Seat

pytestmark = pytest.mark.django_db(transaction=True)

# More than lie between any two places here.
MAX_TABS = 30
# The label or the text of what has the focus, also inside of the editor.
FOCUSED = """() => {
  let found = document.activeElement;
  while (found.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return (found.getAttribute("aria-label") ?? found.innerText).trim();
}"""


def tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Tab until the element with this text or label has the focus."""
    for _ in range(MAX_TABS):
        page.keyboard.press(key)
        if page.evaluate(FOCUSED) == name:
            return
    raise AssertionError(f"no Tab leads to {name!r}")


def test_keys_lead_from_the_list_through_the_editor_to_a_saved_tag(
    stack: object, sit: Callable[..., Seat]
) -> None:
    tags.create("gpu", definition="//node")
    worker = a_worker()
    work(worker)
    page = sit().see("/")
    expect(page.get_by_role("link", name="gpu")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the page")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, "gpu")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="gpu")).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()
    tab_to(page, "Definition")
    page.keyboard.press("End")
    page.keyboard.type("[@id]")
    until(lambda: Preview.objects.filter(expression__text="//node[@id]").exists(), "it is asked")
    work(worker)
    expect(page.get_by_label("What it matches")).to_contain_text("60 of 60 nodes")
    # The editor lets go: Tab is no character of definitions.
    tab_to(page, "Namespaces")
    tab_to(page, "Save", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Published: 60 nodes.")).to_be_visible()
    assert tag("gpu").expression.text == "//node[@id]"  # type: ignore[union-attr]


def test_a_thousand_tags_are_a_few_rows(stack: object, sit: Callable[..., Seat]) -> None:
    Tag.objects.bulk_create(Tag(name=f"tag-{number:04}") for number in range(1000))
    page = sit().see("/")
    table = page.get_by_role("table")
    expect(table).to_have_attribute("aria-rowcount", "1001")
    assert page.get_by_role("row").count() < 60
    page.locator("tm-rows").evaluate("list => list.scrollTo(0, list.scrollHeight)")
    expect(page.get_by_role("link", name="tag-0999")).to_be_visible()
    page.get_by_role("searchbox").fill("0500")
    expect(page.get_by_role("row")).to_have_count(2)
