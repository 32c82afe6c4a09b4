"""Uploads settle in the server while machines die, and no answer says what is not true."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pytest
from django.db import connection

from fixtures.generate import generate
from loadtest.rig.http import Api, ApiProblem
from tagmill.fleet.models import Node
from tagmill.matches import verdicts
from tagmill_expressions import documents as composed
from tagmill_expressions import evaluation
from tests.system.conftest import System

pytestmark = pytest.mark.skipif(
    not verdicts.HAS_KERNEL, reason="a server without the kernel settles nothing"
)

TAGS = {
    "display": "//node[@class='display']",
    "many": "count(//node[@class='network']) > 2",
    "memory": "//node[@id='memory']/size > 100000000000",
}
CLIENTS = 4
NODES = 24
# Nothing here takes a tenth of it.
SECONDS = 30.0


class Uploads:
    """One client, which gives nodes of its own other documents until it is told to stop."""

    def __init__(self, system: System, mine: list[str], number: int, stop: threading.Event) -> None:
        self._system, self._mine, self._stop = system, mine, stop
        self._others = generate(10_000, seed=100 + number)
        self.settled = 0
        self.others = 0

    def run(self) -> None:
        api = Api(self._system.stack.url, self._system.token)
        compiled = {name: evaluation.compile(text, {}) for name, text in TAGS.items()}
        try:
            while not self._stop.is_set():
                for name in self._mine:
                    # A server that is killed breaks the connection: whether it stored the document
                    # is seen at the end.
                    try:
                        self._upload(api, name, compiled)
                    except (OSError, http.client.HTTPException):
                        api.close()
                        self._stop.wait(0.05)
        finally:
            api.close()
            connection.close()

    def _upload(self, api: Api, name: str, compiled: dict[str, evaluation.Compiled]) -> None:
        xml = next(self._others).probes["lshw"]
        try:
            answer = api.put_xml(f"nodes/{name}/document", xml.encode())
        except ApiProblem as problem:
            assert problem.status == http.client.SERVICE_UNAVAILABLE
            return
        if not answer["settled"]:
            self.others += 1
            return
        self.settled += 1
        document = composed.compose(dict(_documents(name)))
        expected = {tag for tag in compiled if compiled[tag].matches(document)}
        assert set(api.get(f"nodes/{name}/tags")["tags"]) == expected


def _documents(name: str) -> list[tuple[str, str]]:
    node = Node.objects.get(system_id=name, deleted_at=None)
    return [(item.probe, item.xml) for item in node.documents.all()]


def _until(condition: Callable[[], bool], running: list[Future[None]]) -> None:
    """Until it holds, or a client has failed."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        wait(running, timeout=0.05, return_when=FIRST_COMPLETED)
        for future in running:
            if future.done():
                future.result()
        assert time.monotonic() < deadline


@pytest.mark.proof
def test_what_is_said_to_be_settled_is_true_while_machines_die(
    settling: None, system: System
) -> None:
    system.stack.start_workers(2)
    for name, definition in TAGS.items():
        system.tag(name, definition)
    system.wait(lambda: all(system.state(name) == "ready" for name in TAGS))
    names = list(Node.objects.order_by("id").values_list("system_id", flat=True)[:NODES])
    stop = threading.Event()
    many = [Uploads(system, names[n::CLIENTS], n, stop) for n in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(one.run) for one in many]
        try:
            _until(lambda: all(one.settled for one in many), running)
            server = system.process("server")
            server.send_signal(signal.SIGKILL)
            server.wait()
            before = sum(one.settled for one in many)
            system.stack.start_server()
            system.connect()
            system.process("worker-1").send_signal(signal.SIGKILL)
            _until(lambda: sum(one.settled for one in many) > before + NODES, running)
        finally:
            stop.set()
        for future in running:
            future.result(SECONDS)
    system.wait(lambda: all(system.state(name) == "ready" for name in TAGS))
    system.assert_true(*TAGS)
