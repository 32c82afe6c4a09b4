"""A browser at the workbench: how it is started, and when a page shows what it is asked for."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, sync_playwright

from api.web import links
from loadtest.bench import BenchError

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Nothing here takes a tenth of it; it ends a run that hangs.
PATIENCE_MS = 30_000

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
