"""What has changed: nothing that commits late is missed, and nobody who waits holds a thread."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from api.server.stream import EVENT_STREAM
from loadtest.rig.stack import Stack
from tagmill.errors import CursorGone, Invalid
from tagmill.fleet import clusters, incarnation
from tagmill.flows import feed, ingest
from tagmill.tags import assignments, tags
from tagmill.tags.models import Tag
from tests.server.test_serve import call, token_of
from tests.support.fleet import ANY, put
from tests.support.threads import in_thread


@pytest.fixture
def cluster(transactional_db: None) -> Any:
    # What was written before there was one is of another history.
    incarnation.current()
    return clusters.create("north")


def kinds(page: feed.Page) -> list[tuple[str, Any]]:
    return [
        (each.kind, each.body.get("system_id") or each.body.get("tag") or each.body.get("tags"))
        for each in page.changes
    ]


def all_of(cursor: feed.Cursor, most: int) -> tuple[list[tuple[str, Any]], feed.Cursor]:
    found: list[tuple[str, Any]] = []
    while True:
        page = feed.read(cursor, most)
        found += kinds(page)
        cursor = feed.decode(page.cursor.encode())
        if not page.more:
            return found, cursor


def test_every_change_is_there_once_and_in_its_order(cluster: Any) -> None:
    cursor = feed.decode("")
    tags.create("hand")
    put("a1", "a2")
    assignments.assign("hand", ["a1", "a2"], [])
    assignments.assign("hand", [], ["a2"])
    ingest.delete("a2")
    expected = [
        ("tag", "hand"),
        ("membership", ["hand"]),
        ("tag", "hand"),
        ("membership", ["hand"]),
        ("tag", "hand"),
    ]
    for most in (1, 3, 100):
        found, after = all_of(cursor, most)
        trail = [each for each in found if each[0] != "node"]
        assert sorted(trail, key=str) == sorted(expected, key=str), most
        assert trail[0] == ("tag", "hand")
        assert [each for each in found if each[0] == "node"] == [("node", "a1"), ("node", "a2")]
        assert all_of(after, most)[0] == []
    page = feed.read(cursor, 100)
    members = [each.body for each in page.changes if each.kind == "membership"]
    assert [(each["added"], each["removed"]) for each in members] == [
        (["a1", "a2"], []),
        ([], ["a2"]),
    ]
    gone = {
        each.body["system_id"]: each.body["deleted"] for each in page.changes if "rev" in each.body
    }
    assert gone == {"a1": False, "a2": True}


def test_what_commits_late_is_not_missed(cluster: Any) -> None:
    """It has the lower number and the earlier time."""
    cursor = feed.decode("")
    written, may_commit = threading.Event(), threading.Event()

    def late() -> None:
        with transaction.atomic():
            Tag.objects.create(name="late")
            written.set()
            assert may_commit.wait(30)

    def early() -> list[feed.Page]:
        assert written.wait(30)
        Tag.objects.create(name="early")
        first = feed.read(cursor, 100)
        put("a1")
        second = feed.read(first.cursor, 100)
        may_commit.set()
        return [first, second]

    running = in_thread(late)
    pages = early()
    running.result(30)
    assert kinds(pages[0]) == [("tag", "early")]
    assert kinds(pages[1]) == [("node", "a1")]
    assert ("tag", "late") in kinds(feed.read(pages[1].cursor, 100))


def test_from_the_beginning_comes_all_that_is_kept(cluster: Any) -> None:
    put("a1", "a2", "a3")
    tags.create("hand")
    found, _ = all_of(feed.decode("0"), 2)
    assert ("tag", "hand") in found
    assert [name for kind, name in found if kind == "node"] == ["a1", "a2", "a3"]


def test_a_cursor_of_another_history_is_gone(cluster: Any) -> None:
    cursor = feed.decode("")
    incarnation.declare()
    with pytest.raises(CursorGone):
        feed.decode(cursor.encode())


@pytest.mark.parametrize("text", ["x", "WzFd", "é", "W" * 5000])
def test_a_cursor_that_no_answer_gave_is_refused(cluster: Any, text: str) -> None:
    with pytest.raises(Invalid):
        feed.decode(text)


@pytest.mark.parametrize("snapshot", ["1", "2:1:", "1:5:4,3", "1:5:9", "1:5:2,2", "0:1:", "1:1:x"])
def test_a_snapshot_that_postgresql_would_not_read_is_refused(cluster: Any, snapshot: str) -> None:
    wrong = feed.Cursor(str(incarnation.current()), 2e9, snapshot)
    with pytest.raises(Invalid):
        feed.decode(wrong.encode())


@pytest.fixture
def lines(stack: Stack) -> Callable[..., list[dict[str, Any]]]:
    header = token_of("viewer")

    def read(query: str = "", **headers: str) -> list[dict[str, Any]]:
        answer, body = call(
            stack, "GET", f"/api/v1/changes{query}", Authorization=header, **headers
        )
        assert answer.status == 200, body
        return [json.loads(line) for line in body.splitlines()]

    return read


def test_lines_end_with_where_to_go_on(lines: Callable[..., list[dict[str, Any]]]) -> None:
    (end,) = lines()
    clusters.create("north")
    put("a1")
    node, later = lines(f"?since={end['cursor']}")
    assert (node["kind"], node["system_id"], later["more"]) == ("node", "a1", False)
    assert lines(f"?since={later['cursor']}")[:-1] == []


def test_whoever_waits_hears_of_the_first_change(
    lines: Callable[..., list[dict[str, Any]]],
) -> None:
    (end,) = lines()

    def wait() -> list[dict[str, Any]]:
        return lines(f"?since={end['cursor']}", Prefer="wait=20")

    waiting = in_thread(wait)
    tags.create("hand")
    found = waiting.result(30)
    assert [each.get("tag") for each in found[:-1]] == ["hand"]


def test_streams_go_on_where_they_ended_and_hold_no_thread(stack: Stack) -> None:
    """More listeners than the server has threads, of both kinds."""
    header = token_of("operator")

    def listen(path: str, **more: str) -> http.client.HTTPResponse:
        host, _, port = stack.listen.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        headers = {"Authorization": header, "Accept": EVENT_STREAM, **more}
        connection.request("GET", f"/api/v1/{path}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.headers["Content-Type"] == EVENT_STREAM
        return answer

    def event(answer: http.client.HTTPResponse) -> dict[str, str]:
        """The next event that has data."""
        found: dict[str, str] = {}
        while line := answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        return found if "data" in found else event(answer)

    open_ones = [listen(path) for path in ("changes", "events") * 20]
    tags.create("hand")
    heard = [event(answer) for answer in open_ones]
    assert {each["event"] for each in heard} == {"tag"}
    for answer in open_ones:
        answer.close()
    clusters.create("north")
    put("a1")
    tags.create("gpu", definition=ANY)
    resumed = listen("changes", **{"Last-Event-ID": heard[0]["id"]})
    following = [event(resumed) for _ in range(3)]
    assert {each["event"] for each in following} == {"tag", "node", "rebuild"}
    resumed.close()
    both = listen("events", **{"Last-Event-ID": heard[1]["id"]})
    assert {event(both)["event"], event(both)["event"]} == {"tag", "rebuild"}
    both.close()


def test_who_may_not_read_may_not_watch(stack: Stack) -> None:
    uploader = token_of("uploader")
    for path in ("changes", "events"):
        assert call(stack, "GET", f"/api/v1/{path}")[0].status == 401
        assert call(stack, "GET", f"/api/v1/{path}", Authorization=uploader)[0].status == 403


def test_a_node_that_moved_is_where_it_is_and_not_gone_as_well(cluster: Any) -> None:
    clusters.create("south")
    put("a1", "a2", cluster="north")
    cursor = feed.decode("")
    put("a1", cluster="south")
    ingest.delete("a2")
    put("a2", cluster="north")
    nodes = [each.body for each in feed.read(cursor, 100).changes if each.kind == "node"]
    assert sorted((node["system_id"], node["cluster"], node["deleted"]) for node in nodes) == [
        ("a1", "south", False),
        ("a2", "north", False),
    ]
