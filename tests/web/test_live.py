"""What happens elsewhere while pages are open: other tabs, other operators, a server's restart."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from loadtest.rig.stack import Stack
from tagmill.tags import tags
from tagmill.tags.models import Preview
from tests.support.fleet import tag
from tests.support.http import client_of
from tests.support.threads import until
from tests.support.workers import a_worker, work
from tests.web.conftest import Seat
from tests.web.test_editor import NETWORK, code, write

pytestmark = pytest.mark.django_db(transaction=True)

THEIRS = "//node[@class='display']"
MINE = "//node[@class='network'][@id]"
# More than the six connections that a browser has for one server.
TABS = 9


def test_nine_tabs_are_open_and_the_tenth_loads_and_hears_what_happens(
    stack: object, sit: Callable[..., Seat]
) -> None:
    seat = sit()
    seat.see("/")
    for _ in range(TABS - 1):
        seat.page.context.new_page().goto(seat.url, wait_until="commit")
    tenth = seat.page.context.new_page()
    tenth.goto(seat.url)
    expect(tenth.get_by_text("No tags yet")).to_be_visible()
    tags.create("gpu", definition="//node")
    expect(tenth.get_by_role("link", name="gpu")).to_be_visible()
    expect(seat.page.get_by_role("link", name="gpu")).to_be_visible()


def test_a_page_goes_on_when_its_server_was_restarted(
    stack: Stack, sit: Callable[..., Seat]
) -> None:
    tags.create("mine")
    seat = sit()
    page = seat.see("/")
    expect(page.get_by_role("link", name="mine")).to_be_visible()
    lost = page.get_by_text("The server cannot be reached")
    stack.signal_server(signal.SIGTERM).wait()
    expect(lost).to_be_visible()
    tags.create("gpu")
    stack.start_server("--no-maintenance")
    expect(lost).to_be_hidden()
    expect(page.get_by_role("link", name="gpu")).to_be_visible()
    # The browser itself says of each request that nobody answered it.
    seat.said[:] = [line for line in seat.said if "ERR_CONNECTION_REFUSED" not in line]


def test_who_saves_what_somebody_else_has_changed_meanwhile_is_told_and_loses_nothing(
    stack: object, sit: Callable[..., Seat]
) -> None:
    tags.create("any", definition=NETWORK)
    worker = a_worker()
    work(worker)
    other = client_of("admin")
    seat = sit()
    page = seat.see("/tags/any")

    def overtaken(route: Route) -> None:
        """The other one's save comes between the click and the request."""
        if route.request.method == "PATCH":
            other.patch("/api/v1/tags/any", {"definition": THEIRS, "comment": "GPUs"}, "json")
        route.continue_()

    page.route("**/api/v1/tags/any", overtaken, times=3)
    page.get_by_label("Comment").fill("cards")
    write(page, MINE)
    until(lambda: Preview.objects.filter(expression__text=MINE).exists(), "it is asked")
    work(worker)
    expect(page.get_by_label("What it matches")).to_contain_text("60 of 60 nodes")
    page.get_by_role("button", name="Save").click()
    told = page.get_by_role("alert")
    expect(told).to_contain_text("the-admin has saved this tag while you typed")
    expect(told.locator("mark")).to_have_text(["'display'", "GPUs", "'network'][@id", "cards"])
    seat.is_accessible()
    page.unroute("**/api/v1/tags/any")
    page.reload()
    expect(told).to_contain_text("the-admin has saved this tag")
    expect(code(page)).to_have_text(MINE)
    told.get_by_role("button", name="Go on with mine").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Published: 60 nodes.")).to_be_visible()
    assert (tag("any").expression.text, tag("any").comment) == (MINE, "cards")  # type: ignore[union-attr]
    # The refusal is the browser's only complaint.
    seat.said[:] = [line for line in seat.said if "412" not in line]
