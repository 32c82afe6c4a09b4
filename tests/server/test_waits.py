"""`Prefer: wait` of rebuilds and tags, over HTTP: woken by completions, not by a clock."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import pytest

from loadtest.rig.stack import Stack
from tagmill.tags import rebuilds, tags
from tests.server.test_serve import call, token_of
from tests.support.fleet import BARE, HAS_GPU, north, put
from tests.support.threads import done, in_thread
from tests.support.workers import a_worker, gpu_published, work

TAG = "/api/v1/tags/gpu"


class Reader:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.token = token_of("viewer")

    def get(self, path: str, wait: int, **headers: str) -> tuple[Any, Any]:
        given = {"Authorization": self.token, "Prefer": f"wait={wait}", **headers}
        response, data = call(self.stack, "GET", path, **given)
        return response, json.loads(data)

    def waits(self, path: str) -> Future[Any]:
        return in_thread(lambda: self.get(path, 30))


@pytest.fixture
def reader(stack: Stack, no_jobs: None) -> Reader:
    north("a", "b", "c")
    return Reader(stack)


def test_a_tag_is_waited_for_until_it_is_ready(reader: Reader) -> None:
    tags.create("gpu", definition=HAS_GPU)
    response, body = reader.get(TAG, 1)
    assert (response.status, body["state"]) == (200, "building")
    assert response.headers["Preference-Applied"] == "wait=1"
    future = reader.waits(TAG)
    worker = a_worker()
    work(worker)
    response, body = done(future)
    assert (response.status, body["state"], body["node_count"]) == (200, "ready", 3)
    assert response.headers["Preference-Applied"] == "wait=30"
    assert response.headers["ETag"]
    # Also where nodes have changed, which nobody announces when it is evaluated.
    tags.update("gpu", by=None, definition="//*[last()]/self::node[lang('de')]|//node[@class]")
    put("a", xml=BARE)
    future = reader.waits(TAG)
    work(worker)
    assert done(future)[1]["state"] == "ready"


def test_a_tag_that_is_gone_or_fails_is_waited_for_no_longer(reader: Reader) -> None:
    tags.create("gpu", definition=HAS_GPU)
    future = reader.waits(TAG)
    tags.delete("gpu")
    assert done(future)[0].status == 404
    # A manual tag is ready at once.
    tags.create("by-hand")
    response, body = reader.get("/api/v1/tags/by-hand", 30)
    assert (body["state"], response.headers["Preference-Applied"]) == ("ready", "wait=30")


def test_a_rebuild_is_waited_for_until_it_is_over(reader: Reader) -> None:
    worker = gpu_published()
    rebuild = rebuilds.request(["gpu"], None)
    path = f"/api/v1/rebuilds/{rebuild.uuid}"
    response, body = reader.get(path, 1)
    assert (response.status, body["state"]) == (200, "running")
    future = reader.waits(path)
    work(worker)
    response, body = done(future)
    assert (body["state"], response.headers["Preference-Applied"]) == ("complete", "wait=30")
    assert body["progress"]["done"] == body["progress"]["total"]
    response, body = reader.get(path, 30)
    assert body["state"] == "complete"


def test_what_would_be_refused_is_refused_before_any_wait(reader: Reader) -> None:
    tags.create("gpu", definition=HAS_GPU)
    uploader = token_of("uploader")
    rebuild = rebuilds.request(["gpu"], None)
    for path in (TAG, f"/api/v1/rebuilds/{rebuild.uuid}"):
        assert reader.get(path, 30, Authorization="Token no")[0].status == 401
        assert reader.get(path, 30, Authorization=uploader)[0].status == 403
        response, body = reader.get(f"{path}?what=1", 30)
        assert (response.status, body["code"]) == (400, "unknown_field")
    for path in ("/api/v1/tags/nobody", "/api/v1/tags/a%00b", f"/api/v1/rebuilds/{'0' * 36}"):
        assert reader.get(path, 30)[0].status == 404
    changed, _ = call(
        *(reader.stack, "PATCH", TAG, b'{"comment": "x"}'),
        **{"Authorization": token_of("operator"), "Content_Type": "application/json"},
        Prefer="wait=30",
    )
    assert (changed.status, changed.headers["Preference-Applied"]) == (200, None)
