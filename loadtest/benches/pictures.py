"""Pictures of the workbench's pages, on a fleet that has a past: tags were changed, nodes came and
went, and the last hour was busy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from playwright.sync_api import Browser, Page

from api import tokens
from api.roles import Role
from loadtest.benches.opening import OPEN, SHOWN, entered
from loadtest.rig.rig import Running
from tagmill.fleet.models import Node
from tagmill.tags import assignments, tags
from tagmill.work import leases
from tagmill.work.models import Sample

CLUSTERS = 4
# Small partitions, so that a small fleet has many.
PARTITION_SLOTS = 64
WIDTHS = {360: 740, 1280: 800, 2560: 1440, 3840: 2160}
SCHEMES = ("light", "dark")
TAG = "fast-ethernet"
FIRST = "//node[@class='network']"
PUBLISHED = "//node[@class='network']/product[contains(., 'ConnectX-4')]"
TYPED = """//node[@class='network']/product[contains(., 'ConnectX-4') or contains(., 'ConnectX-5')]
  and count(//node[@class='processor' and not(@disabled='true')]) >= 2"""
# What TAG has said, each with how many minutes what stood before had stood then; LAST is for how
# long the last has stood.
BEFORE = (("//node[@class='network']/vendor[starts-with(., 'Mellanox')]", 190), (PUBLISHED, 45))
LAST = 25
PINNED = 3
PIN = "names => localStorage.setItem(`tagmill pinned nodes of bench`, JSON.stringify(names))"
# Samples of an hour, the seconds between two, and those taken during a rebuild.
HOUR = 180
SECONDS = 20
REBUILD = range(90, 96)
# As many samples in which one worker was alone.
ALONE = range(20)

# Nothing was drawn for half a second: lists come after the page.
QUIET = """() => new Promise((done) => {
  let last = performance.now();
  const seen = new MutationObserver(() => (last = performance.now()));
  seen.observe(document.body, { subtree: true, childList: true, attributes: true });
  const look = () => (performance.now() - last > 500 ? done() : setTimeout(look, 50));
  look();
})"""
_AGE = (
    "UPDATE match_change SET at = at - make_interval(mins => %s)",
    "UPDATE audit_event SET at = at - make_interval(mins => %s)",
    "UPDATE tag SET created_at = created_at - make_interval(mins => %s)",
    "UPDATE tag SET updated_at = updated_at - make_interval(mins => %s)",
)
_UNLEARNT = """
SELECT count(*) FROM partition
 WHERE NOT EXISTS (SELECT FROM vocabulary WHERE vocabulary.partition_id = partition.id)
"""


def prepare(running: Running) -> None:
    """Gives the fleet its past, and waits for its words."""
    by = User.objects.get(username="bench")
    tag = {"name": TAG, "definition": FIRST, "comment": "for the storage racks"}
    running.api.post("tags/", tag)
    running.settle()
    for definition, minutes in BEFORE:
        _age(minutes)
        running.api.call("PATCH", f"tags/{TAG}", {"definition": definition})
        running.settle()
    _age(LAST)
    tags.create("decommissioned", comment="waits for its removal", by=by)
    names = Node.objects.order_by("-id").values_list("system_id", flat=True)[:12]
    assignments.assign("decommissioned", list(names), [])
    _sample(timezone.now())
    tokens.issue(by, Role.UPLOADER, days=90, name="nightly upload")
    running.rig.wait(lambda: _has_learnt(running), running.stack)


def _has_learnt(running: Running) -> bool:
    """There is no maintenance that would leave the words to the workers."""
    leases.learn()
    return bool(running.rig.scalar(_UNLEARNT) == 0)


def _age(minutes: int) -> None:
    """What has happened so far was so much earlier."""
    with connection.cursor() as cursor:
        for statement in _AGE:
            cursor.execute(statement, [minutes])


def _sample(now: datetime) -> None:
    """An hour of a fleet that has a busy and a quiet time, and a rebuild in the midst of it."""
    Sample.objects.all().delete()
    nodes = Node.objects.count()
    Sample.objects.bulk_create(
        Sample(
            at=now - timedelta(seconds=SECONDS * (HOUR - number)),
            nodes=nodes,
            stale=240 if number in REBUILD else 6 + number * 7 % 5,
            jobs=0,
            leases=0,
            workers=1 if number in ALONE else 2,
            changes=int(300 + 200 * math.sin(number / 25) + number * 37 % 60),
            verdicts=90_000 if number in REBUILD else int(4000 + 2500 * math.sin(number / 25)),
            revs=number,
        )
        for number in range(HOUR)
    )


def draw(url: str, browser: Browser, paths: Mapping[str, str], folder: Path) -> None:
    """Every page in all sizes, light and dark, as NAME-WIDTH-SCHEME.png."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(Node.objects.order_by("id").values_list("system_id", flat=True)[:PINNED])
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            size = {"width": width, "height": height}
            page = entered(url, browser, viewport=size, color_scheme=scheme)
            page.evaluate(PIN, names)
            for name in _shown(page, paths):
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
            page.context.close()


def _type(page: Page) -> None:
    """Nothing is drawn before it is known what the text would change."""
    page.get_by_role("textbox", name="Definition").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(TYPED)
    page.evaluate(SHOWN)
    page.get_by_role("button", name="Added").click()


def _shown(page: Page, paths: Mapping[str, str]) -> Iterator[str]:
    """The names of the pages, each while it is seen."""
    for name, path in paths.items():
        page.goto(path)
        page.evaluate(OPEN)
        page.evaluate(QUIET)
        if name == "editor":
            _type(page)
            page.evaluate(QUIET)
        yield name
