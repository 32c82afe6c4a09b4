"""A tag's page: its definition as it is typed, what it would match, and saving it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tagmill.matches.models import Match
from tagmill.tags import tags
from tests.support.fleet import tag
from tests.support.workers import a_worker, work
from tests.web.conftest import Seat

pytestmark = pytest.mark.django_db(transaction=True)

NETWORK = "//node[@class='network']"
HAS_GPU = "//node[@class='display']/vendor[contains(.,'NVIDIA')]"


def code(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Definition")


def write(page: Page, text: str) -> None:
    code(page).click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def test_a_new_tag_is_typed_rewritten_and_saved_as_previewed(
    learnt: None, worker: None, sit: Callable[..., Seat]
) -> None:
    seat = sit()
    page = seat.see("/new")
    page.get_by_label("Name", exact=True).fill("net")
    write(page, "//node[@class=network]")
    warning = page.get_by_role("list", name="Warnings").get_by_role("listitem")
    expect(warning).to_contain_text("text needs quotes column 15")
    expect(page.locator(".cm-lintRange-warning")).to_have_text("network")
    seat.is_accessible()
    warning.get_by_role("button", name="Rewrite").click()
    expect(code(page)).to_have_text(NETWORK)
    result = page.get_by_label("What it matches")
    expect(result).to_contain_text("60 of 60 nodes, 100%")
    evaluated = Match.objects.count()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="net")).to_be_visible()
    expect(page.get_by_text("ready")).to_be_visible()
    assert tag("net").pending_expression is None
    assert Match.objects.count() == evaluated
    seat.is_accessible()


def test_what_would_be_taken_away_is_shown_and_asked_about(
    stack: object, sit: Callable[..., Seat], request: pytest.FixtureRequest
) -> None:
    tags.create("any", definition="//node")
    work(a_worker())
    request.getfixturevalue("worker")
    seat = sit()
    page = seat.see("/tags/any")
    result = page.get_by_label("What it matches")
    expect(result).to_contain_text("60 of 60 nodes")
    write(page, HAS_GPU)
    expect(result).to_contain_text("against what is published")
    removed = result.get_by_role("button", name="Removed")
    expect(removed).not_to_have_text("Removed 0")
    number = int(removed.inner_text().split()[1])
    removed.click()
    expect(result.get_by_role("listitem").first).to_be_visible()
    page.get_by_role("button", name="Save").click()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text(f"{number} nodes of 60 lose the tag")
    seat.is_accessible()
    question.get_by_role("button", name="Cancel").click()
    assert tag("any").expression.text == "//node"  # type: ignore[union-attr]
    code(page).press("Control+Enter")
    question.get_by_role("button", name=f"Take it from {number} nodes").click()
    expect(page.get_by_text(f"Published: {60 - number} node")).to_be_visible()
    assert tag("any").expression.text == HAS_GPU  # type: ignore[union-attr]


def test_an_error_is_marked_at_its_column_in_characters_not_units(
    learnt: None, sit: Callable[..., Seat]
) -> None:
    page = sit().see("/new")
    write(page, "//node[. = '\U0001f5a5\U0001f5a5'] ]")
    expect(page.get_by_label("Warnings")).to_contain_text("column 18")
    expect(page.locator(".cm-lintRange-error")).to_have_text("]")


def test_words_of_the_fleet_complete_what_is_typed(learnt: None, sit: Callable[..., Seat]) -> None:
    page = sit().see("/new")
    code(page).click()
    page.keyboard.type("//node[@class='netw")
    option = page.get_by_role("option", name="network")
    expect(option).to_contain_text("60")
    option.click()
    expect(code(page)).to_have_text(NETWORK)


def test_nothing_typed_is_lost_on_reload(learnt: None, sit: Callable[..., Seat]) -> None:
    tags.create("any", definition="//node")
    page = sit().see("/tags/any")
    write(page, NETWORK)
    page.reload()
    expect(page.get_by_text("did not save")).to_be_visible()
    expect(code(page)).to_have_text(NETWORK)
    page.get_by_role("button", name="Discard it").click()
    expect(code(page)).to_have_text("//node")
    # So is what is no definition yet.
    page.goto(page.url.replace("/tags/any", "/new"))
    page.get_by_label("Name", exact=True).fill("net")
    page.reload()
    expect(page.get_by_label("Name", exact=True)).to_have_value("net")


def test_a_viewer_reads_a_definition_and_its_nodes(stack: object, sit: Callable[..., Seat]) -> None:
    tags.create("any", definition="//node")
    tags.create("none", definition="//nothing")
    work(a_worker())
    seat = sit("viewer")
    expect(seat.see("/tags/none").get_by_text("No node carries it.")).to_be_visible()
    page = seat.see("/tags/any")
    expect(page.get_by_role("heading", name="60 nodes")).to_be_visible()
    nodes = page.get_by_label("What it matches").get_by_role("listitem")
    expect(nodes.first).to_be_visible()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    expect(code(page)).to_have_attribute("contenteditable", "false")
    seat.is_accessible()
