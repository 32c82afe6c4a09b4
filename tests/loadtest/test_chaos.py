"""What `bench chaos` judges by: its wires, its ledger, and what fails a run."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from loadtest.bench import BenchError
from loadtest.chaos.bench import ChaosBench, grown
from loadtest.chaos.checks import Usage
from loadtest.chaos.ledger import Ledger
from loadtest.chaos.network import Network
from loadtest.chaos.traffic import altered, definition
from loadtest.chaos.upgrade import UpgradeBench, checked_out
from loadtest.rig.changes import MARKER_DEFINITION
from loadtest.rig.stack import free_port
from tagmill.flows import ingest
from tagmill.tags import tags
from tests.support.fleet import HAS_GPU, north, put

SECONDS = 20.0


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    with Server(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), SECONDS)


def echoes(connection: socket.socket) -> bool:
    connection.sendall(b"hear\n")
    return connection.recv(100) == b"hear\n"


def is_reset(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def test_a_wire_goes_past_a_server_that_is_gone(network: Network, echo: tuple[str, int]) -> None:
    wire = network.wire(("127.0.0.1", free_port()), echo)
    for _ in range(3):
        with connect(wire.port) as connection:
            assert echoes(connection)


def test_a_wire_that_is_cut_resets_and_connects_nobody(
    network: Network, echo: tuple[str, int]
) -> None:
    wire = network.wire(echo)
    with connect(wire.port) as connection:
        assert echoes(connection)
        wire.cut()
        assert is_reset(connection)
    with connect(wire.port) as another:
        assert is_reset(another)
    wire.mend()
    with connect(wire.port) as another:
        assert echoes(another)


def test_a_wire_that_is_held_is_silent_and_forgets_its_connections(
    network: Network, echo: tuple[str, int]
) -> None:
    wire = network.wire(echo)
    with connect(wire.port) as before, connect(wire.port) as idle:
        assert echoes(before) and echoes(idle)
        wire.hold()
        before.sendall(b"hear\n")
        before.settimeout(0.1)
        with pytest.raises(TimeoutError):
            before.recv(100)
        before.settimeout(SECONDS)
        wire.mend()
        assert is_reset(before) and is_reset(idle)
    with connect(wire.port) as after:
        assert echoes(after)


@pytest.mark.django_db(transaction=True)
def test_the_ledger_names_what_the_database_has_otherwise() -> None:
    ledger = Ledger()
    north("a", "b", "c", "d")
    for name in "abcd":
        put(name, xml=b"<list/>")
        ledger.stored(name, "<list/>")
    tags.create("gpu", definition=HAS_GPU)
    ledger.defined("gpu", HAS_GPU)
    assert ledger.lost() == []
    ingest.delete("a")
    ledger.stored("b", "<list><node/></list>")
    ledger.deleted("c")
    ledger.defined("gpu", "//other")
    assert ledger.lost() == [
        "node a is not there",
        "node b has older content",
        "node c is there, and was deleted",
        "tag gpu has older content",
    ]


def test_what_uploads_change_is_what_definitions_ask_about() -> None:
    rng = random.Random(1)
    xml = '<node id="a"><node id="b"/></node>'
    seen = set()
    for _ in range(200):
        xml = altered(xml, rng)
        tree = etree.fromstring(xml)
        seen |= {bool(tree.xpath(text)) for text in (MARKER_DEFINITION, definition(rng))}
        assert tree.xpath("boolean(//node[@id='b']) and count(//node[@id='bench-change']) = 1")
    assert seen == {True, False}


def test_a_process_that_grows_is_named_and_another_in_its_place_is_not() -> None:
    first = {"server-1": Usage(7, 100 << 20, 40), "worker-1": Usage(8, 100 << 20, 20)}
    assert grown(first, first) == []
    last = {"server-1": Usage(7, 200 << 20, 90), "worker-1": Usage(9, 900 << 20, 900)}
    assert grown(first, last) == [
        "server-1 had 40 open files, and has 90",
        "server-1 takes 100 MiB more than after a quarter of the soak",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"lost": ["node a is not there"]}, "node a is not there"),
        ({"wrong_answers": 2}, "cut: 2 answers differ from lxml's"),
        ({"recovery_seconds": 5.5}, "cut: recovered after 5.5 s"),
    ],
)
def test_a_run_fails_for_what_is_lost_wrong_or_late(
    change: dict[str, Any], said: str | None
) -> None:
    row = {"name": "cut", "lost": [], "wrong_answers": 0, "recovery_seconds": 1.0} | change
    skipped = {"name": "clock", "impossible": "libfaketime is not installed"}
    found = {"faults": [row, skipped], "soak": None, "wrong": [], "recovery_limit_seconds": 5.0}
    assert ChaosBench().fault(found) == said
    assert ChaosBench().fault(found | {"wrong": ["500 internal: "]}) is not None


def test_what_a_rolling_upgrade_fails_by() -> None:
    row = {"says": "both", "lost": [], "wrong_answers": 0, "errors": 0, "shown": []}
    fault = UpgradeBench().fault
    assert fault({"wrong": [], "steps": [row]}) is None
    assert fault({"wrong": ["500 internal: "], "steps": [row]}) == "500 internal: "
    assert fault({"wrong": [], "steps": [row | {"lost": ["node a is not there"]}]})
    assert fault({"wrong": [], "steps": [row | {"wrong_answers": 2}]})
    assert fault({"wrong": [], "steps": [row | {"errors": 1, "shown": ["a fault"]}]})


def test_the_version_before_is_a_folder_or_a_commit(tmp_path: Path) -> None:
    (tmp_path / "manage.py").touch()
    assert checked_out(str(tmp_path), tmp_path / "out") == tmp_path
    with pytest.raises(BenchError, match="no commit 'nowhere'"):
        checked_out("nowhere", tmp_path / "out")
