"""A browser, a server with a worker and a small fleet; each test logs in anew."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from api.web import links
from fixtures import loader
from loadtest.rig.stack import Stack
from tagmill.fleet.models import Document, Partition
from tagmill.work import workers
from tagmill_expressions import documents
from tagmill_expressions.vocabulary import Vocabulary
from tests.support.http import make_user
from tests.support.servers import server
from tests.support.sql import execute
from tests.support.threads import until
from tests.tags.test_vocabulary import learn_parts, packed

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NODES = 60
# Nothing here takes a tenth of it; it only ends a test that would hang.
PATIENCE_MS = 20_000
CONTRAST = """async () => {
  const { violations } = await axe.run({ runOnly: ["color-contrast"] });
  return violations.flatMap(({ nodes }) => nodes.map((node) => node.html));
}"""
AT_WORK = """
SELECT FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("the workbench is tested in Chromium, which is not here: apt install chromium")
    # Playwright runs a loop in this thread, in which Django would refuse to ask the database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="module")
def shared_server(
    browser: Browser, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    # The database, which is emptied after each test, would keep another key for its next start.
    yield from server(tmp_path_factory.mktemp("server"), TAGMILL_SECRET_KEY=secrets.token_hex(32))


@pytest.fixture
def stack(transactional_db: None, shared_server: Stack) -> Stack:
    """A fleet, and a server without a worker: `tests.support.workers.work` does what there is."""
    loader.load(NODES, seed=1, profile="lean")
    return shared_server


@pytest.fixture
def worker(stack: Stack) -> Iterator[None]:
    """One that evaluates whatever comes, as previews."""
    stack.token = workers.issue_token("web", "all")[1]
    stack.start_workers(1)
    yield
    stack.stop_workers()


@pytest.fixture
def learnt(stack: object) -> None:
    """The fleet's words, which workers learn when they have nothing else to do."""
    for partition in Partition.objects.all():
        found = Document.objects.filter(node__partition=partition, probe="lshw")
        words = Vocabulary.of(documents.compose({"lshw": item.xml}) for item in found)
        learn_parts(partition, partition.rev, -1, [packed(words)])


@dataclass
class Seat:
    """Somebody before the workbench. `said` is what the browser's console has, which is nothing."""

    page: Page
    user: User
    url: str
    said: list[str]

    def see(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def is_accessible(self) -> None:
        """In light by all rules, and in dark by the one that colours can break."""
        found = Axe().run(self.page)
        assert found.violations_count == 0, found.generate_report()
        self.page.emulate_media(color_scheme="dark")
        pale = self.page.evaluate(CONTRAST)
        self.page.emulate_media(color_scheme="light")
        assert pale == []


@pytest.fixture
def sit(browser: Browser, stack: Stack) -> Iterator[Callable[..., Seat]]:
    """Logs somebody of a role in, by a link, and looks at the console in the end."""
    seats: list[Seat] = []

    def down(role: str | None = "operator", **options: object) -> Seat:
        user = make_user(role)
        # What fades is looked at in its end.
        context = browser.new_context(reduced_motion="reduce", **options)  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        seat = Seat(page, user, stack.url, [])

        def hear(message: ConsoleMessage) -> None:
            seat.said.append(f"{message.type}: {message.text}")

        page.on("console", hear)
        page.on("pageerror", lambda error: seat.said.append(str(error)))
        seats.append(seat)
        # The page that the link leads to is not drawn: a test goes where it wants to be.
        answer = context.request.get(f"{stack.url}{links.make(user)}", max_redirects=0)
        assert answer.status == 302, answer.text()
        return seat

    yield down
    for seat in seats:
        with suppress(Exception):
            seat.page.context.close()
    # What a page asked for last is done before the database is emptied.
    until(lambda: not execute(AT_WORK), "the server is idle")
    assert [seat.said for seat in seats] == [[]] * len(seats)
