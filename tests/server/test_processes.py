"""`manage.py serve --processes`: a real server of two processes, and how it loses one of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.core.management import call_command

from loadtest.rig.stack import Stack, is_free
from tagmill.errors import ConfigurationError
from tests.server.test_serve import call, token_of
from tests.support.fleet import north
from tests.support.servers import serve, server
from tests.support.sql import database_url, execute
from tests.support.threads import done, in_thread, until, until_blocked

PROCESSES = 2
NODES = 6


@pytest.fixture(scope="module")
def pairs(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Stack]]:
    """Gives the one that was started last, if it still runs, or another."""
    folder = tmp_path_factory.mktemp("pair")
    with contextlib.ExitStack() as started:
        stacks: list[Stack] = []

        def running() -> Stack:
            if not stacks or stacks[-1].has_ended():
                options = ("--processes", str(PROCESSES))
                made = server(folder / str(len(stacks)), options, TMPDIR=str(folder))
                started.callback(made.close)
                stacks.append(next(made))
            return stacks[-1]

        yield running


@pytest.fixture
def pair(transactional_db: None, pairs: Callable[[], Stack]) -> Stack:
    """Two processes, one of which runs the periodic tasks."""
    stack = pairs()
    until(lambda: events(stack, "ready"), "all processes to be ready")
    return stack


def directories(stack: Stack) -> list[Path]:
    """What the parent keeps for its children."""
    return list(stack.log.parents[1].glob("tagmill-serve-*"))


def events(stack: Stack, event: str) -> list[dict[str, Any]]:
    lines = (stack.log / "server.log").read_text().splitlines()
    found = (json.loads(line) for line in lines if line.startswith("{") and line.endswith("}"))
    return [line for line in found if line.get("event") == event]


def parent(stack: Stack) -> psutil.Process:
    return psutil.Process(stack.pids()["server"])


def children(stack: Stack) -> list[psutil.Process]:
    """In the order of their slots."""
    return sorted(parent(stack).children(), key=lambda child: child.environ()["_TAGMILL_SLOT"])


def metric(stack: Stack, name: str) -> float:
    text = call(stack, "GET", "/metrics")[1].decode()
    found = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.M)
    assert len(found) == 1, f"{name} is there {len(found)} times"
    return float(found[0])


def requests_to(stack: Stack, route: str) -> float:
    return metric(
        stack, f'tagmill_http_requests_total{{method="GET",route="{route}",status="200"}}'
    )


def connected(stack: Stack) -> list[http.client.HTTPConnection]:
    """Connections that stay, each of which has been answered."""
    host, _, port = stack.listen.partition(":")
    made = [http.client.HTTPConnection(host, int(port), timeout=30) for _ in range(8)]
    for connection in made:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
    return made


def established(process: psutil.Process, stack: Stack) -> int:
    port = int(stack.listen.partition(":")[2])
    found = process.net_connections(kind="tcp")
    return sum(item.status == "ESTABLISHED" and item.laddr.port == port for item in found)


def leaders() -> list[Any]:
    """The periodic tasks' workers, as the database knows them."""
    return execute("SELECT id FROM procrastinate_workers")


def test_a_killed_process_is_replaced_and_nothing_counted_is_lost(pair: Stack) -> None:
    before = children(pair)
    connections = connected(pair)
    # Four each, unless the machine is so busy that a process comes late to its turn.
    shares = [established(process, pair) for process in before]
    assert (sum(shares), min(shares) > 0) == (len(connections), True)
    until(lambda: metric(pair, "tagmill_connections") >= len(connections), "all to be counted")
    for connection in connections:
        connection.close()
    counted = requests_to(pair, "healthz")
    assert counted == len(connections)
    assert metric(pair, "tagmill_database_up") == 1
    until(leaders, "the periodic tasks to run")
    (first,) = leaders()

    (leading,) = (line["process"] for line in events(pair, "the periodic tasks have a process"))
    dead = leading - 1
    before[dead].send_signal(signal.SIGKILL)
    until(lambda: len(events(pair, "the periodic tasks have a process")) == 2, "another to lead")
    for _ in range(20):
        assert call(pair, "GET", "/readyz")[0].status == 200
        assert requests_to(pair, "healthz") == counted
    until(lambda: metric(pair, "tagmill_processes") == PROCESSES, "another in its place")
    after = children(pair)
    assert [old.pid == new.pid for old, new in zip(before, after, strict=True)] == [
        slot != dead for slot in range(PROCESSES)
    ]
    assert metric(pair, "tagmill_process_restarts_total") == 1
    assert requests_to(pair, "healthz") == counted
    text = call(pair, "GET", "/metrics")[1].decode()
    assert set(re.findall(r'process_open_fds{process="(\d)"}', text)) == {"0", "1", "2"}
    until(lambda: [found for found in leaders() if found != first], "the periodic tasks to run")
    led = [line["process"] for line in events(pair, "the periodic tasks have a process")]
    assert led == [leading, PROCESSES + 1 - leading]
    (ended,) = events(pair, "a process of the server has ended: another takes its place")
    assert (ended["process"], ended["pid"]) == (leading, before[dead].pid)
    assert "SIGKILL" in ended["ended"]


def test_nothing_outlives_the_parent(pair: Stack) -> None:
    family = children(pair)
    assert directories(pair)
    process = pair.signal_server(signal.SIGKILL)
    process.wait(20)
    until(lambda: is_free(pair.listen), "the address to be free")
    until(lambda: not any(child.is_running() for child in family), "the children to end")
    assert not directories(pair)


def test_sigterm_loses_no_request_of_any_process(pair: Stack) -> None:
    names = [f"n{number}" for number in range(NODES)]
    north(*names)
    header = token_of("operator")
    connections = connected(pair)[:NODES]

    def put(number: int) -> int:
        xml = f"<list><node id='new-{number}'/></list>"
        headers = {"Authorization": header, "Content-Type": "application/xml"}
        place = f"/api/v1/nodes/{names[number]}/document"
        connections[number].request("PUT", place, xml, headers)
        return connections[number].getresponse().status

    with psycopg.connect(database_url()) as holder:
        holder.execute("LOCK TABLE partition IN ACCESS EXCLUSIVE MODE")
        running = [in_thread(lambda number=number: put(number)) for number in range(NODES)]
        until_blocked(PROCESSES)
        process = pair.signal_server(signal.SIGTERM)
        # As a service manager does, and somebody who is impatient.
        for one in (parent(pair), *children(pair)):
            one.send_signal(signal.SIGTERM)
            one.send_signal(signal.SIGINT)
        until(lambda: len(events(pair, "draining")) == 1 + PROCESSES, "everybody to drain")
    assert [done(answer) for answer in running] == [200] * NODES
    assert process.wait(30) == 0
    stored = execute("SELECT count(*) FROM document WHERE xml LIKE '%%new-%%'")
    assert stored == [(NODES,)]
    assert is_free(pair.listen)
    assert not directories(pair)
    assert '"error"' not in (pair.log / "server.log").read_text()


def test_one_process_is_its_own_parent(stack: Stack) -> None:
    assert parent(stack).children() == []
    text = call(stack, "GET", "/metrics")[1].decode()
    assert "\nprocess_open_fds " in text
    assert 'process="' not in text
    assert metric(stack, "tagmill_processes") == 1
    assert not any("process" in line for line in events(stack, "ready"))


@pytest.mark.parametrize("wrong", ["0", "1000", "many"])
def test_a_wrong_number_of_processes_is_named(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^--processes {wrong!r}"):
        call_command("serve", processes=wrong)


def test_an_address_that_is_taken_is_named_by_the_parent(transactional_db: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = serve("--processes", "2", "--listen", f"127.0.0.1:{port}")
    assert ended.returncode == 2
    assert "does not start" in ended.stderr
    assert "TAGMILL_LISTEN" in ended.stderr
