"""What the fleet is made of: clusters, workers, words; and the history of a tag."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tagmill.matches.models import MatchChange
from tagmill.tags import tags
from tagmill.work import leases, samples
from tagmill_wire.messages import Done
from tests.support.fleet import carriers, tag
from tests.support.sql import execute
from tests.support.workers import a_worker, work
from tests.web.conftest import Seat

pytestmark = pytest.mark.django_db(transaction=True)


def test_clusters_and_workers_are_shown(stack: object, sit: Callable[..., Seat]) -> None:
    leases.heartbeat(a_worker(name="worker-1"), [], Done(60, 3, 750))
    seat = sit()
    page = seat.see("/fleet")
    expect(page.get_by_text("60 nodes in 1 cluster")).to_be_visible()
    expect(page.get_by_role("list", name="Partitions of site-1")).to_contain_text("up to date")
    expect(page.get_by_role("row").filter(has_text="worker-1").first).to_contain_text("all")
    expect(page.get_by_role("row").filter(has_text="worker-1").first).to_contain_text("12.5")
    seat.is_accessible()


def test_the_last_hour_is_drawn(stack: object, sit: Callable[..., Seat]) -> None:
    seat = sit()
    page = seat.see("/fleet")
    expect(page.get_by_text("Charts begin with the second sample")).to_be_visible()
    for minutes in (3, 2, 1):
        samples.take()
        execute("UPDATE fleet_sample SET at = at - interval '1 minute'")
        tags.create(f"any-{minutes}", definition=f"//node[{minutes}]")
    page.reload()
    waiting = page.get_by_role("figure").filter(has_text="Evaluations that wait")
    expect(waiting.get_by_role("strong")).to_have_text("2")
    expect(waiting.locator("canvas")).to_be_visible()
    seat.is_accessible()


def test_words_are_clicked_together(learnt: None, sit: Callable[..., Seat]) -> None:
    seat = sit()
    page = seat.see("/vocabulary")
    expect(page.get_by_text("learnt from 60 documents")).to_be_visible()
    seat.is_accessible()
    page.get_by_role("searchbox").fill("netw")
    page.get_by_role("link", name="//node[@class = 'network']").click()
    definition = page.get_by_role("textbox", name="Definition")
    expect(definition).to_have_text("//node[@class = 'network']")


def test_the_history_of_a_tag_names_who_and_what(stack: object, sit: Callable[..., Seat]) -> None:
    tags.create("any", definition="//node", comment="all of them")
    worker = a_worker()
    work(worker)
    seat = sit()
    page = seat.see("/tags/any")
    expect(page.get_by_label("History")).to_contain_text("all of them")
    over_time = page.get_by_label("Nodes over time")
    expect(over_time).to_contain_text("+60")
    expect(over_time).not_to_contain_text("no changes are kept")
    shown = page.locator("tm-chart").evaluate("chart => chart.shown")
    assert shown[0] == [pytest.approx(tag("any").created_at.timestamp(), abs=0.01), 0]
    assert shown[-1][1] == 60
    # The chart has a gap where no changes are kept.
    MatchChange.objects.all().delete()
    tags.update("any", by=None, definition="//vendor[contains(.,'NVIDIA')]")
    work(worker)
    left = len(carriers("any"))
    assert 0 < left < 60
    page.reload()
    expect(over_time).to_contain_text("no changes are kept")
    assert [size for _, size in page.locator("tm-chart").evaluate("chart => chart.shown")] == (
        [0, None, left, left]
    )
    seat.is_accessible()
