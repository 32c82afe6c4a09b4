"""`bench web`: the workbench in Chromium, from the last key to the shown difference, and its pages.

Times are the browser's own, from the event of the key to the frame that shows the answer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.table import Table

from api.web import links
from fixtures import loader
from fixtures.generate import PROFILES
from fixtures.tags import SAMPLE_TAGS
from loadtest.bench import Bench, BenchError, Session, check_sizes, machine, percentile, settings
from loadtest.benches.preview import unseen
from loadtest.rig.rig import Rig, Running
from tagmill.fleet.models import Node

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {360: 740, 1280: 800, 2560: 1440}
SCHEMES = ("light", "dark")
# Nothing here takes a tenth of it; it ends a run that hangs.
PATIENCE_MS = 30_000
WARM = 3

# When the last key came, and how long it took until the page shows the difference that it makes.
LISTEN = "addEventListener('beforeinput', () => { window.typedAt = performance.now(); }, true)"
SHOWN = """() => new Promise((done) => {
  const look = () => {
    const { preview, draft } = document.querySelector("tm-editor");
    const result = document.querySelector("tm-change > .stack");
    const isShown = preview.found?.state === "complete"
      && preview.asked.definition === draft.definition
      && result !== null && !result.classList.contains("old");
    if (isShown) requestAnimationFrame(() => done(performance.now() - window.typedAt));
    else setTimeout(look, 1);
  };
  look();
})"""
# A page is open when it has its heading and loads nothing more that it says it loads.
OPEN = """() => new Promise((done) => {
  const look = () => {
    const main = document.querySelector("main");
    const isOpen = main?.querySelector("h1")
      && !/Loading \\.\\.\\.|Evaluating \\.\\.\\./.test(main.innerText);
    if (isOpen) requestAnimationFrame(() => done({
      open: performance.now(),
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
    }));
    else setTimeout(look, 1);
  };
  look();
})"""


class WebBench(Bench):
    name = "web"
    help = "the workbench in Chromium: from the last key to the difference, and opening each page"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=10_000)
        parser.add_argument("--profile", choices=PROFILES, default="lean")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument("--edits", type=int, default=30, help="definitions that are typed")
        parser.add_argument("--opened", type=int, default=3, help="times that each page is opened")
        parser.add_argument(
            "--screenshots", type=Path, metavar="FOLDER", help="of every page, in all sizes"
        )

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "workers", "edits", "opened")
        session.console.print(f"generating {options['nodes']:,} nodes", style="dim")
        loader.load(options["nodes"], seed=options["seed"], profile=options["profile"])
        with (
            # The bench types faster than people do, and more than its share.
            settings(previews_per_minute=1_000_000),
            Rig(session.url, session.log) as rig,
        ):
            rig.create_tags({tag.name: tag.definition for tag in SAMPLE_TAGS})
            with rig.stack(options["workers"]) as running, chromium() as browser:
                running.settle()
                return self._look(running, browser, options)

    def _look(
        self, running: Running, browser: Browser, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        tag = SAMPLE_TAGS[0].name
        node = Node.objects.order_by("id")[0].system_id
        paths = {
            "tags": "/",
            "editor": f"/tags/{tag}",
            "nodes": "/nodes/",
            "node": f"/nodes/{node}?tag={tag}",
            "vocabulary": "/vocabulary",
            "recipes": "/recipes",
            "fleet": "/fleet",
            "health": "/health",
            "account": "/account",
        }
        page = entered(running.stack.url, browser)
        pages = {name: self._opened(page, path, options["opened"]) for name, path in paths.items()}
        edits = self._typed(page, paths["editor"], options["edits"])
        if options["screenshots"]:
            draw(running.stack.url, browser, paths, options["screenshots"])
        return {
            "bench": "web",
            "machine": machine(),
            "nodes": options["nodes"],
            "profile": options["profile"],
            "key_to_difference_ms": {
                "p50": round(percentile(edits, 0.5), 1),
                "p95": round(percentile(edits, 0.95), 1),
                "samples": [round(item, 1) for item in edits],
            },
            "open_ms": pages,
        }

    def _opened(self, page: Page, path: str, times: int) -> dict[str, float]:
        found = []
        for _ in range(times):
            page.goto(path)
            found.append(page.evaluate(OPEN))
        return {
            name: round(statistics.median(item[name] or item["open"] for item in found), 1)
            for name in ("paint", "open")
        }

    def _typed(self, page: Page, path: str, count: int) -> list[float]:
        """Milliseconds, ascending. The first few are not counted: everything is new then."""
        page.goto(path)
        page.evaluate(OPEN)
        page.evaluate(LISTEN)
        texts, found = unseen(), []
        for _ in range(WARM + count):
            page.get_by_role("textbox", name="Definition").click()
            page.keyboard.press("Control+a")
            page.keyboard.insert_text(next(texts))
            found.append(float(page.evaluate(SHOWN)))
        return sorted(found[WARM:])

    def show(self, console: Console, result: dict[str, Any]) -> None:
        typed = result["key_to_difference_ms"]
        console.print(
            f"{result['nodes']:,} nodes: from the last key to the shown difference p50 "
            f"{typed['p50']:.0f} ms, p95 {typed['p95']:.0f} ms"
        )
        table = Table("page", "first paint ms", "open ms")
        for name, times in result["open_ms"].items():
            table.add_row(name, f"{times['paint']:.0f}", f"{times['open']:.0f}")
        console.print(table)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Raises BenchError where there is none. Playwright runs a loop in this thread, in which Django
    would refuse to ask the database."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        raise BenchError("there is no Chromium: apt install chromium")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def entered(url: str, browser: Browser, **look: Any) -> Page:
    """A page of somebody who is logged in and may do everything."""
    page = browser.new_context(base_url=url, **look).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(links.make(User.objects.get(username="bench")))
    return page


def draw(url: str, browser: Browser, paths: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            size = {"width": width, "height": height}
            page = entered(url, browser, viewport=size, color_scheme=scheme)
            for name, path in paths.items():
                page.goto(path)
                page.evaluate(OPEN)
                # Lists come after the page.
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
            page.context.close()
