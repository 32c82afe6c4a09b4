"""A machine's page, the list of machines, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tagmill.fleet.models import Node
from tagmill.tags import tags
from tests.support.fleet import carriers
from tests.support.workers import a_worker, work
from tests.web.conftest import NODES, Seat

pytestmark = pytest.mark.django_db(transaction=True)

HAS_GPU = "//node[@class='display']/vendor[contains(.,'NVIDIA')]"


def test_why_a_node_is_in_or_out_with_exactly_its_hits_marked(
    stack: object, sit: Callable[..., Seat]
) -> None:
    tags.create("nvidia", definition=HAS_GPU)
    work(a_worker())
    name = min(carriers("nvidia"))
    seat = sit()
    page = seat.see(f"/nodes/{name}?tag=nvidia")
    expect(page.get_by_text("The node matches.")).to_be_visible()
    expect(page.get_by_label("Tags of the node")).to_contain_text("1 of 1 definition")
    expect(page.locator(".item.hit")).to_have_count(1)
    expect(page.locator(".item.hit")).to_contain_text("NVIDIA Corporation")
    seat.is_accessible()
    page.get_by_role("tree").press("ArrowUp")
    expect(page.locator(".item.current")).to_contain_text("product")
    page.get_by_role("tree").press("ArrowDown")
    page.get_by_role("link", name="Make a tag of this").click()
    expect(page.get_by_role("textbox", name="Definition")).to_have_text(
        "//node[@class = 'display']/vendor[. = 'NVIDIA Corporation']"
    )
    page.go_back()
    page.get_by_label("By any expression").fill("//node[@id='nothing']")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text("The node does not match.")).to_be_visible()
    expect(page.locator(".missing")).to_contain_text("matched 0")
    page.get_by_role("searchbox").fill("processor")
    expect(page.locator(".item.sought").first).to_be_visible()


def test_nodes_are_found_by_the_beginning_of_a_name(
    stack: object, sit: Callable[..., Seat]
) -> None:
    node = Node.objects.order_by("id")[0]
    seat = sit("viewer")
    page = seat.see("/nodes/")
    expect(page.get_by_role("main")).to_contain_text(f"{NODES} in the fleet")
    seat.is_accessible()
    page.get_by_role("searchbox").fill(node.hostname[:-1].upper() + node.hostname[-1])
    expect(page.get_by_role("listitem").filter(has_text=node.system_id)).to_be_visible()


def test_health_names_what_waits(stack: object, sit: Callable[..., Seat]) -> None:
    work(a_worker())
    seat = sit()
    page = seat.see("/health")
    expect(page.get_by_text("all is well")).to_be_visible()
    expect(page.get_by_text("1 partition, all up to date")).to_be_visible()
    seat.is_accessible()
