"""`bench web`: the workbench in Chromium, from the last key to the shown difference, and its pages.

Times are the browser's own, from the event of the key to the frame that shows the answer.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.tags import SAMPLE_TAGS
from loadtest.bench import Bench, Session, add_fleet, check_sizes, machine, percentile, settings
from loadtest.benches import pictures
from loadtest.benches.opening import LISTEN, OPEN, SHOWN, chromium, entered
from loadtest.benches.preview import unseen
from loadtest.rig.rig import Rig, Running

WARM = 3


class WebBench(Bench):
    name = "web"
    help = "the workbench in Chromium: from the last key to the difference, and opening each page"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser)
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument("--edits", type=int, default=30, help="definitions that are typed")
        parser.add_argument("--opened", type=int, default=3, help="times that each page is opened")
        parser.add_argument(
            "--screenshots", type=Path, metavar="FOLDER", help="of every page, in all sizes"
        )

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "workers", "edits", "opened")
        session.console.print(f"generating {options['nodes']:,} nodes", style="dim")
        has_pictures = options["screenshots"] is not None
        small = {"partition_slots": pictures.PARTITION_SLOTS} if has_pictures else {}
        with (
            # The bench types faster than people do, and more than its share.
            settings(previews_per_minute=1_000_000, **small),
            Rig(session.url, session.log) as rig,
        ):
            loader.load(
                options["nodes"],
                seed=options["seed"],
                profile=options["profile"],
                clusters=pictures.CLUSTERS if has_pictures else 1,
            )
            rig.tidy()
            rig.create_tags({tag.name: tag.definition for tag in SAMPLE_TAGS})
            with rig.stack(options["workers"]) as running, chromium() as browser:
                running.settle()
                if has_pictures:
                    pictures.prepare(running)
                return self._look(running, browser, options)

    def _look(
        self, running: Running, browser: Browser, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        tag = pictures.TAG if options["screenshots"] else SAMPLE_TAGS[0].name
        node = running.api.get(f"tags/{tag}/nodes?limit=1")["results"][0]["system_id"]
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
            pictures.draw(running.stack.url, browser, paths, options["screenshots"])
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
