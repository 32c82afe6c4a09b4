"""What holds for all pages: a viewer is shown nothing that would be refused, large documents are a
few rows, and the pages outside of the workbench's frame are accessible too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Response, expect

from api import users
from tagmill.fleet import clusters
from tagmill.fleet.models import Node
from tagmill.tags import assignments, tags
from tests.support.fleet import put
from tests.support.workers import a_worker, work
from tests.web.conftest import Seat

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = ("Tags", "Nodes", "Vocabulary", "Recipes", "Fleet", "Health")
# A document of 300 kB has so many, with 2,102 elements.
DISKS = 300
DISK = (
    "<node id='disk:{0}' class='disk' handle='SCSI:{0}'><description>ATA Disk</description>"
    "<product>{1}</product><serial>S{0}</serial><size units='bytes'>{0}</size>"
    "<configuration><setting id='ansiversion' value='5'/></configuration></node>"
)
MAX_DRAWN = 80
# Rows that scroll into sight are drawn, and the two that the arrow leads between.
MAX_CHANGES = 60
# What somebody may press who may only read.
READING = {"Explain"}
# All but those that sort and filter what is shown.
BUTTONS = "a.button, button:not([aria-pressed], [role=columnheader] *)"
COUNT_CHANGES = """tree => {
  window.changes = 0;
  const seen = new MutationObserver((found) => (window.changes += found.length));
  seen.observe(tree, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


def test_a_viewer_sees_no_button_that_would_be_refused(
    learnt: None, sit: Callable[..., Seat]
) -> None:
    tags.create("any", definition="//node")
    tags.create("mine")
    work(a_worker())
    seat = sit("viewer")
    refused: list[str] = []

    def look(response: Response) -> None:
        if response.status >= 400:
            refused.append(response.url)

    seat.page.on("response", look)
    page = seat.see("/")
    expect(page.get_by_role("row")).to_have_count(3)
    expect(page.get_by_role("checkbox")).to_have_count(0)
    main = page.get_by_role("main")
    buttons = set()
    for name in PAGES:
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        expect(page.get_by_text("Loading ...")).to_have_count(0)
        buttons |= set(main.locator(BUTTONS).all_inner_texts())
        if name == "Nodes":
            main.get_by_role("listitem").get_by_role("link").first.click()
            expect(page.get_by_role("tree")).to_be_visible()
            buttons |= set(main.locator(BUTTONS).all_inner_texts())
    assert buttons <= READING
    assert refused == []


def test_a_large_document_is_a_few_rows(stack: object, sit: Callable[..., Seat]) -> None:
    disks = "".join(DISK.format(number, "x" * 750) for number in range(DISKS))
    put("large", cluster="site-1", xml=f"<list><node id='core'>{disks}</node></list>".encode())
    page = sit().see("/nodes/large")
    tree = page.get_by_role("tree")
    items = tree.get_by_role("treeitem")
    expect(page.get_by_text("2,102 elements")).to_be_visible()
    assert items.count() < MAX_DRAWN
    tree.press("End")
    expect(items.filter(has_text="disk:299")).to_be_visible()
    page.get_by_role("searchbox").fill("S150")
    expect(tree.locator(".current")).to_contain_text("S150")
    assert items.count() < MAX_DRAWN
    tree.evaluate(COUNT_CHANGES)
    tree.press("ArrowDown")
    expect(tree.locator(".current")).to_contain_text("size")
    assert page.evaluate("changes") < MAX_CHANGES


def test_the_login_and_the_pages_of_problems_are_accessible(
    stack: object, sit: Callable[..., Seat]
) -> None:
    seat = sit()
    seat.see("/api/problems/not_found")
    seat.is_accessible()
    seat.page.context.clear_cookies()
    expect(seat.see("/").get_by_role("button", name="Log in")).to_be_visible()
    seat.is_accessible()


def test_who_may_read_one_cluster_sees_its_nodes_and_why_nothing_else(
    stack: object, sit: Callable[..., Seat]
) -> None:
    clusters.create("other")
    put("elsewhere", cluster="other")
    seat = sit(None)
    expect(seat.see("/").get_by_text("an administrator can give you a role")).to_be_visible()
    users.set_cluster_roles(seat.user.username, {"other": "viewer"})
    page = seat.see("/")
    expect(page.get_by_text("a role that holds in all clusters")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(["Nodes"])
    seat.is_accessible()
    page.get_by_role("main").get_by_role("link", name="Nodes").click()
    rows = page.get_by_role("main").get_by_role("listitem")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").click()
    expect(page.get_by_role("tree")).to_be_visible()


def test_the_end_of_a_long_list_is_read_without_what_lies_between(
    stack: object, sit: Callable[..., Seat]
) -> None:
    tags.create("any", definition="//node")
    tags.create("hand")
    assignments.assign("hand", list(Node.objects.values_list("system_id", flat=True)), [])
    last = Node.objects.order_by("partition_id", "slot").last()
    assert last is not None
    work(a_worker())
    seat = sit(viewport={"width": 1280, "height": 500})
    asked: list[str] = []
    seat.page.on("request", lambda request: asked.append(request.url))
    # The nodes of a tag, all there are, and those of a preview.
    for path in ("/tags/hand", "/nodes/", "/tags/any"):
        page = seat.see(path)
        rows = page.locator("tm-nodes").get_by_role("listitem")
        expect(rows.first).to_contain_text("site-1")
        asked.clear()
        page.locator("tm-nodes").evaluate("list => (list.page = 10)")
        page.locator("tm-nodes tm-rows").evaluate("list => list.scrollTo(0, list.scrollHeight)")
        expect(rows.filter(has_text=last.system_id)).to_be_visible()
        read = {url.partition("begin=")[2] for url in asked if "begin=" in url}
        assert f"{last.partition_id}.50" in read, path
        assert f"{last.partition_id}.30" not in read, path
