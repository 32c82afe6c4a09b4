"""Why a node is in a tag, or out, over REST. The explanations themselves: tests/expressions."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from rest_framework.test import APIClient

from tagmill import config
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill.tags import explaining
from tests.support.fleet import BARE
from tests.support.http import problem

EXPLAIN = "/api/v1/definitions/explain"
DISPLAY = "//node[@class='display']"
Put = Callable[..., None]
Evaluate = Callable[[], int]


def explain(client: APIClient, definition: str, node: str = "a") -> Any:
    return client.post(EXPLAIN, {"definition": definition, "node": node}, format="json")


def make(operator: APIClient, name: str, definition: str) -> None:
    made = operator.post("/api/v1/tags/", {"name": name, "definition": definition}, format="json")
    assert made.status_code == 201, made.content


def test_a_tag_is_explained_on_a_node(
    operator: APIClient, viewer: APIClient, put: Put, evaluate: Evaluate
) -> None:
    put("a")
    make(operator, "gpu", DISPLAY)
    evaluate()
    found = viewer.get("/api/v1/tags/gpu/explain?node=a").json()
    assert found["node"] == {"system_id": "a", "hostname": "host-a"}
    assert (found["definition"], found["verdict"]) == (DISPLAY, True)
    assert found["explanation"]["kind"] == "path"
    assert [hit["path"] for hit in found["explanation"]["hits"]] == ["/list/node/node"]
    assert (found["stored"]["member"], found["stored"]["fresh"]) == (True, True)
    assert found["evaluator"]["name"] == "lxml"


def test_what_is_stored_may_differ_while_it_is_stale(
    operator: APIClient, put: Put, evaluate: Evaluate
) -> None:
    put("a")
    make(operator, "gpu", DISPLAY)
    evaluate()
    put("a", xml=BARE)
    found = operator.get("/api/v1/tags/gpu/explain?node=a").json()
    assert found["verdict"] is False
    assert found["explanation"]["missing"]["instead"] == []
    assert (found["stored"]["member"], found["stored"]["fresh"]) == (True, False)


def test_a_definition_that_no_tag_has_is_explained(viewer: APIClient, put: Put) -> None:
    put("a")
    found = explain(viewer, "//node[@id='cor'] or //node[@class='display']").json()
    assert found["verdict"] is True
    kinds = [(part["kind"], part["verdict"]) for part in found["explanation"]["operands"]]
    assert kinds == [("path", False), ("path", True)]
    assert found["explanation"]["operands"][0]["missing"]["instead"] == ["core"]
    assert found["stored"] is None
    assert found["evaluator"] == {
        "name": None,
        "reason": "no worker is running",
        "plan": found["evaluator"]["plan"],
    }


def test_a_pending_definition_is_explained_where_none_is_published(
    operator: APIClient, put: Put
) -> None:
    put("a")
    make(operator, "gpu", DISPLAY)
    assert operator.get("/api/v1/tags/gpu/explain?node=a").json()["verdict"] is True


def test_a_node_without_documents_matches_nothing(viewer: APIClient, cluster: Any) -> None:
    ingest.store([Upload("b", "north", "b", None, {})])
    found = explain(viewer, "true()", "b").json()
    assert (found["verdict"], found["explanation"]) == (False, None)


def test_who_is_not_there_cannot_be_explained(
    operator: APIClient, viewer: APIClient, put: Put
) -> None:
    put("a")
    make(operator, "gpu", DISPLAY)
    operator.post("/api/v1/tags/", {"name": "hand"}, format="json")
    problem(viewer.get("/api/v1/tags/none/explain?node=a"), 404, "not_found")
    problem(viewer.get("/api/v1/tags/gpu/explain?node=none"), 404, "not_found")
    problem(viewer.get("/api/v1/tags/gpu/explain?node=%00"), 404, "not_found")
    problem(viewer.get("/api/v1/tags/gpu/explain"), 400, "invalid")
    problem(viewer.get("/api/v1/tags/hand/explain?node=a"), 409, "manual_tag")
    problem(explain(viewer, "//node["), 400, "invalid_definition")
    problem(explain(viewer, "//node", "none"), 404, "not_found")


RUNAWAY = "count(//*[count(//*[count(//*[count(//*) > 1]) > 1]) > 1]) > 1"


def test_a_definition_that_runs_away_is_stopped(
    viewer: APIClient, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a", xml=f"<list>{'<node/>' * 4000}</list>".encode())
    quick = config.load().model_copy(update={"evaluation_seconds": 0.5})
    monkeypatch.setattr("tagmill.tags.explaining.load", lambda: quick)
    started = time.monotonic()
    problem(explain(viewer, RUNAWAY), 422, "too_expensive")
    assert time.monotonic() - started < 10
    assert explain(viewer, "//node").json()["verdict"] is True


def test_an_answer_is_bounded_whatever_the_definition_finds(
    viewer: APIClient, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a", xml=f"<list>{'<node>word</node>' * 100}</list>".encode())
    definition = " or ".join(["//absent", "//node"] * 50)
    whole = explain(viewer, definition).json()["explanation"]
    assert whole["operands"]
    monkeypatch.setattr(explaining, "MAX_ANSWER_BYTES", len(definition) + 1000)
    left = explain(viewer, definition).json()["explanation"]
    assert left == {**whole, "operands": [], "truncated": True}
    monkeypatch.setattr(explaining, "MAX_ANSWER_BYTES", 500)
    found = problem(explain(viewer, definition), 422, "too_expensive")
    assert "too long to be shown" in found["detail"]


def test_what_checks_a_definition_is_bounded_too(
    viewer: APIClient, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree of a definition of 8,192 signs takes some MB, which the process does not get."""
    put("a")
    monkeypatch.setattr(explaining, "MAX_BYTES", 1024 * 1024)
    problem(explain(viewer, "a" + " or a" * 3000), 422, "too_expensive")


def test_anybody_who_may_read_may_ask(anonymous: APIClient, put: Put) -> None:
    put("a")
    problem(explain(anonymous, "//node"), 401, "unauthorized")


def test_who_comes_when_too_many_are_running_may_try_again(
    viewer: APIClient, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a")
    monkeypatch.setattr(explaining, "WAIT_SECONDS", 0.01)
    with contextlib.ExitStack() as others:
        for _ in range(explaining.MAX_AT_ONCE):
            others.enter_context(explaining.places)
        found = problem(explain(viewer, "//node"), 429, "busy")
    assert found["retry_after"] > 0
    assert explain(viewer, "//node").status_code == 200


def test_the_child_may_write_no_more_than_is_read_of_it(tmp_path: Path) -> None:
    """Whatever it has to say: its own look at the length is not all that bounds it."""
    asked = {"text": "//node", "namespaces": {}, "probes": {"lshw": "<list/>"}, "seconds": 5.0}
    limits = {"bytes": explaining.MAX_BYTES, "answer_bytes": 16}
    with (tmp_path / "answer").open("wb") as out:
        subprocess.run(
            [sys.executable, "-m", "tagmill.tags.explain_child"],
            input=orjson.dumps(asked | limits),
            stdout=out,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    assert (tmp_path / "answer").stat().st_size == 16
