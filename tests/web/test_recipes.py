"""Recipes, the machines that somebody pins, and what is somebody's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree
from playwright.sync_api import expect

from api.models import UserToken
from tagmill.fleet.models import Document, Node
from tests.server.test_serve import token_of
from tests.web.conftest import NODES, Seat
from tests.web.test_editor import NETWORK, code, write

pytestmark = pytest.mark.django_db(transaction=True)


def matching(definition: str) -> int:
    documents = Document.objects.filter(probe="lshw")
    trees = (etree.fromstring(item.xml.encode()) for item in documents)
    return sum(bool(tree.xpath(definition)) for tree in trees)


def test_each_recipe_writes_an_expression_and_shows_what_it_matches(
    learnt: None, worker: None, sit: Callable[..., Seat]
) -> None:
    seat = sit()
    page = seat.see("/recipes")
    result = page.get_by_label("What it matches")
    recipes = page.get_by_role("group", name="Recipe").get_by_role("button")
    expect(recipes).to_have_count(10)
    found = {}
    for number in range(recipes.count()):
        recipes.nth(number).click()
        written = page.locator(".written").inner_text()
        found[recipes.nth(number).inner_text()] = matching(written)
        expect(result).to_contain_text(f"{matching(written)} of {NODES} nodes")
    assert len(set(found.values())) > 3, found
    recipes.first.click()
    seat.is_accessible()
    slider = page.get_by_role("slider", name="At least")
    before = page.locator(".written").inner_text()
    slider.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "4096 GiB")
    expect(result).to_contain_text(f"0 of {NODES} nodes")
    slider.press("Home")
    assert page.locator(".written").inner_text() != before
    page.get_by_role("link", name="Make a tag of this").click()
    expect(code(page)).to_contain_text("1073741824")


def test_pinned_machines_are_in_or_out_as_one_types_and_say_why(
    learnt: None, worker: None, sit: Callable[..., Seat]
) -> None:
    nodes = list(Node.objects.order_by("id")[:2])
    seat = sit()
    page = seat.see(f"/nodes/{nodes[0].system_id}")
    page.get_by_role("button", name="Pin it to the editor").click()
    expect(page.get_by_role("button", name="Pinned")).to_be_visible()
    page.goto(f"{seat.url}/new")
    bench = page.get_by_role("region", name="Pinned machines")
    bench.get_by_label("system_id").fill("no-such-node")
    bench.get_by_role("button", name="Pin", exact=True).click()
    expect(bench.get_by_role("alert")).to_contain_text("no-such-node")
    bench.get_by_label("system_id").fill(nodes[1].system_id)
    bench.get_by_role("button", name="Pin", exact=True).click()
    machines = bench.locator(".pins > li")
    expect(machines).to_have_count(2)
    write(page, NETWORK)
    expect(machines.first.locator(".badge")).to_have_text("in")
    write(page, f"//node[@id='nothing'] or '{nodes[1].hostname}' = string(/list/node/@id)")
    expect(machines.first.locator(".badge")).to_have_text("out")
    seat.is_accessible()
    bench.get_by_role("button", name=f"Why {nodes[0].system_id}").click()
    expect(machines.first.locator(".missing").first).to_contain_text("matched 0")
    bench.get_by_role("button", name=f"Let {nodes[0].system_id} go").click()
    page.reload()
    expect(bench.locator(".pins > li")).to_have_count(1)
    # What asked for nothing is no error in the console but this one.
    seat.said[:] = [line for line in seat.said if "404" not in line]


def test_ones_own_tokens_are_made_shown_once_and_revoked(
    stack: object, sit: Callable[..., Seat]
) -> None:
    seat = sit()
    page = seat.see("/account")
    expect(page.get_by_text("You have no token.")).to_be_visible()
    page.get_by_label("What it is for").fill("nightly upload")
    page.get_by_label("It may do what").select_option("uploader")
    page.get_by_role("button", name="Make a token").click()
    shown = page.get_by_role("status").locator("pre").inner_text()
    made = UserToken.objects.get()
    assert (made.name, made.role, made.user) == ("nightly upload", "uploader", seat.user)
    assert shown.startswith(made.key)
    listed = page.get_by_role("list", name="Your tokens").get_by_role("listitem")
    expect(listed).to_contain_text("never used")
    seat.is_accessible()
    page.get_by_role("button", name="Revoke nightly upload").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("You have no token.")).to_be_visible()
    assert not UserToken.objects.exists()


def test_dropped_files_become_nodes(
    stack: object, sit: Callable[..., Seat], tmp_path: Path
) -> None:
    good, bad = tmp_path / "rack 7.xml", tmp_path / "bad.xml"
    good.write_text(Document.objects.filter(probe="lshw")[0].xml)
    bad.write_text("<list>")
    seat = sit()
    page = seat.see("/account")
    page.get_by_label("or choose them").set_input_files([good, bad])
    files = page.get_by_role("list", name="Files").get_by_role("listitem")
    expect(files).to_have_count(2)
    expect(files.filter(has_text="bad.xml")).to_contain_text("not well-formed")
    expect(files.filter(has_text="rack 7.xml")).to_contain_text("rack-7")
    files.get_by_role("link", name="rack-7").click()
    expect(page.get_by_role("tree")).to_be_visible()
    tree = etree.fromstring(good.read_bytes())
    assert Node.objects.get(system_id="rack-7").hostname == tree.xpath("string(//node/@id)")
    # The refusal of the bad one is the browser's only complaint.
    assert [line for line in seat.said if "400" not in line] == []
    seat.said.clear()


def test_a_view_is_copied_as_curl(stack: object, sit: Callable[..., Seat]) -> None:
    seat = sit("viewer")
    page = seat.see("/nodes/")
    expect(page.get_by_role("main")).to_contain_text(f"{NODES} in the fleet")
    expect(page.get_by_role("main").get_by_role("listitem").first).to_contain_text("site-1")
    page.get_by_role("button", name="Copy as curl").click()
    dialog = page.get_by_role("dialog")
    asked = dialog.locator("pre").filter(has_text="nodes/?")
    expect(asked).to_have_text(
        re.compile(
            r"^curl -H \"Authorization: Token \$TAGMILL_TOKEN\" 'http://[^']+/nodes/\?[^']*'$"
        )
    )
    seat.is_accessible()
    answer = subprocess.run(
        ["sh", "-c", asked.inner_text()],
        env={**os.environ, "TAGMILL_TOKEN": token_of("viewer").removeprefix("Token ")},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert len(json.loads(answer.stdout)["results"]) == NODES
