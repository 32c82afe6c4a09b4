"""`Prefer: wait` and event streams of previews, over HTTP: woken by completions, not by a clock."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

import psycopg
import pytest
from twisted.internet.defer import Deferred

from api.server.previews import MAX_WAITING, Turns
from loadtest.benches.polls import wait_until
from loadtest.rig.stack import Stack
from tagmill.errors import Busy
from tagmill.tags.models import Preview
from tests.server.test_pools import blocked_by
from tests.server.test_serve import call, token_of
from tests.support.fleet import HAS_GPU, north
from tests.support.sql import database_url
from tests.support.threads import done, in_thread, until
from tests.support.workers import a_worker, work

URL = "/api/v1/previews"


@pytest.fixture
def token(stack: Stack, no_jobs: None) -> str:
    """An operator's; and a fleet of three nodes."""
    north("a", "b", "c")
    return token_of("operator")


def ask(
    stack: Stack, token: str, definition: str = HAS_GPU, wait: int = 30, limit: str = "2"
) -> tuple[Any, Any]:
    """The answer to POST; or to the GET that waits for it."""
    response, data = call(
        stack,
        "POST",
        f"{URL}?limit={limit}",
        json.dumps({"definition": definition}),
        Authorization=token,
        Content_Type="application/json",
    )
    body = json.loads(data)
    assert response.headers["Preference-Applied"] is None
    if response.status != HTTPStatus.ACCEPTED or not wait:
        return response, body
    path = f"{URL}/{body['uuid']}?limit={limit}"
    response, data = call(stack, "GET", path, Authorization=token, Prefer=f"wait={wait}")
    return response, json.loads(data)


def asked(stack: Stack, token: str, definition: str = HAS_GPU, wait: int = 30) -> Future[Any]:
    """One that waits: its preview is there."""
    before = set(Preview.objects.values_list("uuid", flat=True))
    future = in_thread(lambda: ask(stack, token, definition, wait))
    until(
        lambda: set(Preview.objects.values_list("uuid", flat=True)) - before or future.done(),
        "a preview",
    )
    return future


def test_a_waiting_preview_is_answered_when_it_is_complete(stack: Stack, token: str) -> None:
    future = asked(stack, token)
    work(a_worker())
    response, body = done(future)
    assert (response.status, body["state"], body["node_count"]) == (200, "complete", 3)
    assert response.headers["Preference-Applied"] == "wait=30"
    assert [item["system_id"] for item in body["nodes"]["results"]] == ["a", "b"]
    rest = body["nodes"]["next"].removeprefix(stack.url)
    _, data = call(stack, "GET", rest, Authorization=token)
    assert [item["system_id"] for item in json.loads(data)["results"]] == ["c"]


def post(stack: Stack, token: str, definition: str = HAS_GPU, **headers: str) -> tuple[Any, Any]:
    """The answer to a POST that waits, as its headers say."""
    body = json.dumps({"definition": definition})
    given = {"Authorization": token, "Content_Type": "application/json", **headers}
    response, data = call(stack, "POST", f"{URL}?limit=2", body, **given)
    return response, json.loads(data)


def test_one_request_begins_a_preview_and_answers_when_it_is_complete(
    stack: Stack, token: str
) -> None:
    future = in_thread(lambda: post(stack, token, Prefer="wait=30"))
    until(lambda: Preview.objects.exists() or future.done(), "a preview")
    work(a_worker())
    response, body = done(future)
    assert (response.status, body["state"], body["node_count"]) == (200, "complete", 3)
    assert response.headers["Preference-Applied"] == "wait=30"
    assert response.headers["Retry-After"] is None
    assert response.headers["RateLimit"] and response.headers["X-Request-Id"]
    place = response.headers["Location"].removeprefix(stack.url)
    assert body == json.loads(call(stack, "GET", f"{place}?limit=2", Authorization=token)[1])
    # It is evaluated already, and answered at once.
    again, body = post(stack, token, Prefer="wait=30")
    assert (again.status, body["node_count"], len(body["nodes"]["results"])) == (200, 3, 2)


def test_a_request_that_begins_a_preview_says_why_it_waits_no_longer(
    stack: Stack, token: str
) -> None:
    response, body = post(stack, token, Prefer="wait=1")
    assert (response.status, body["state"], response.headers["Retry-After"]) == (
        *(202, "evaluating", "1"),
    )
    assert response.headers["Preference-Applied"] == "wait=1"
    older = in_thread(lambda: post(stack, token, "//node[1]", Prefer="wait=30"))
    until(lambda: Preview.objects.filter(expression__text="//node[1]").exists(), "the older")
    kept = post(stack, token, "//node[2]", Prefer="wait=30", Idempotency_Key="k")[0]
    assert (kept.status, kept.headers["Preference-Applied"]) == (202, None)
    response, body = done(older)
    assert (response.status, body["code"]) == (410, "preview_gone")
    refused, body = post(stack, token, "//node[", Prefer="wait=30")
    assert (refused.status, body["code"]) == (400, "invalid_definition")


def counted(stack: Stack, sample: str) -> float:
    """A counter of the server's; 0 where it has not counted yet."""
    lines = call(stack, "GET", "/metrics")[1].decode().splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith(f"tagmill_http_{sample} ")
    )


def test_a_wait_that_is_over_answers_with_progress(stack: Stack, token: str) -> None:
    timed, waited = (f'request_seconds_count{{route="{name}"}}' for name in ("previews", "preview"))
    unfinished = 'requests_total{method="GET",route="preview",status="202"}'
    before = {name: counted(stack, name) for name in (timed, unfinished)}
    response, body = ask(stack, token, wait=1)
    assert (response.status, body["state"]) == (202, "evaluating")
    call(stack, "GET", f"{URL}/{body['uuid']}", Authorization=token)
    # A request that does not wait is timed like others. It is counted when it is over, which may be
    # a moment after its answer was read.
    wait_until(lambda: counted(stack, timed) == before[timed] + 2)
    assert counted(stack, unfinished) == before[unfinished] + 1
    assert counted(stack, waited) == 0
    path = f"{URL}/{body['uuid']}"
    waiting = in_thread(
        lambda: call(stack, "GET", path, Authorization=token, Prefer="wait=30")[0].status
    )
    work(a_worker())
    assert done(waiting) == 200


def test_a_newer_preview_ends_the_wait_for_the_older(stack: Stack, token: str) -> None:
    older = asked(stack, token, "//node[1]")
    newer = asked(stack, token, "//node[2]")
    response, body = done(older)
    # Not found, where the older had not begun to wait.
    assert (response.status, body["code"]) in {(410, "preview_gone"), (404, "not_found")}
    work(a_worker())
    assert done(newer)[0].status == 200


def test_what_is_refused_is_refused_before_any_wait(stack: Stack, token: str) -> None:
    response, body = ask(stack, token, "//node[")
    assert (response.status, body["code"], body["column"]) == (400, "invalid_definition", 8)
    response, body = ask(stack, "Token wrong")
    assert (response.status, body["code"]) == (401, "unauthorized")
    response, body = ask(stack, token_of("viewer"))
    assert (response.status, body["code"]) == (403, "forbidden")
    response, _ = call(stack, "PUT", URL, Authorization=token, Prefer="wait=9")
    assert response.status == 405


def test_a_stranger_does_not_wait_for_those_who_may(stack: Stack, token: str) -> None:
    with psycopg.connect(database_url()) as holder:
        holder.execute("LOCK TABLE preview IN ACCESS EXCLUSIVE MODE")
        first = in_thread(lambda: ask(stack, token, wait=1))
        until(lambda: blocked_by(holder.info.backend_pid) == 1, "the preview to wait")
        response, body = ask(stack, "Token wrong")
        assert (response.status, body["code"]) == (401, "unauthorized")
        other = in_thread(lambda: ask(stack, token_of("admin"), "//node[2]", wait=1))
        until(lambda: blocked_by(holder.info.backend_pid) == 2, "another client's to come as far")
        assert not first.done()
    assert {done(first)[0].status, done(other)[0].status} == {202}


def test_a_client_takes_one_turn_at_a_time_and_waits_for_some() -> None:
    turns, running = Turns(), list[Deferred[str]]()

    def call(name: str) -> Deferred[str]:
        running.append(Deferred())
        return running[-1].addCallback(lambda _: name)

    def take(client: int, name: str) -> list[Any]:
        got: list[Any] = []
        Deferred.fromCoroutine(turns.run(client, call, name)).addBoth(got.append)
        return got

    answers = [take(1, f"{number}") for number in range(MAX_WAITING + 1)]
    assert len(running) == 1
    assert isinstance(take(1, "too many")[0].value, Busy)
    assert take(2, "other") == []
    assert len(running) == 2
    for number in range(len(answers) + 1):
        running[number].callback("")
    assert answers == [[f"{number}"] for number in range(MAX_WAITING + 1)]
    assert len(turns) == 0


@pytest.mark.parametrize("limit", ["0000000019999999", "9" * 4400, "x"])
def test_a_wait_takes_no_other_page_than_the_rest(stack: Stack, token: str, limit: str) -> None:
    response, body = ask(stack, token, wait=1, limit=limit)
    assert (response.status, body["field"]) == (400, "limit")
    assert not Preview.objects.exists()
    _, body = ask(stack, token, wait=0)
    path = f"{URL}/{body['uuid']}?limit={limit}"
    response, data = call(stack, "GET", path, Authorization=token, Prefer="wait=1")
    assert (response.status, json.loads(data)["field"]) == (400, "limit")


def test_the_events_of_a_preview_end_with_its_end(stack: Stack, token: str) -> None:
    _, body = ask(stack, token, wait=0)
    host, _, port = stack.listen.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", f"{URL}/{body['uuid']}/events", headers={"Authorization": token})
    stream = connection.getresponse()
    assert stream.readline() == b"event: progress\n"
    assert json.loads(stream.readline()[6:])["pending"] == 1
    work(a_worker())
    rest = stream.read().decode()
    connection.close()
    assert rest.strip().splitlines()[-2] == "event: end"
    assert json.loads(rest.strip().splitlines()[-1][6:])["state"] == "complete"
    response, _ = call(stack, "GET", f"{URL}/{body['uuid']}/events", Authorization="Token no")
    assert response.status == 401


def test_the_events_of_a_cancelled_preview_end(stack: Stack, token: str) -> None:
    _, body = ask(stack, token, wait=0)
    path = f"{URL}/{body['uuid']}"
    reading = in_thread(lambda: call(stack, "GET", f"{path}/events", Authorization=token)[1])
    assert call(stack, "DELETE", path, Authorization=token)[0].status == 204
    assert b'"gone"' in done(reading) or b"not_found" in done(reading)
