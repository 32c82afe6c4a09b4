"""The worker as a process, with real signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
import treq

from tagmill_wire import __version__
from tests.workers import mockapi
from tests.workers.running import polled, run
from tests.workers.test_worker import Rig

MANAGE = Path(__file__).parents[2] / "manage.py"
ENDLESS = "count(//*[count(//*[count(//*) > 1]) > 1]) > 1"
BIG = "<node>" + "<a/>" * 3000 + "</node>"


def spawn(
    rig: Rig, *options: str, token: str = mockapi.TOKEN, stderr: Any = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(MANAGE), "worker", "--server", rig.url, *options],
        env={**os.environ, "TAGMILL_WORKER_TOKEN": token},
        stderr=stderr,
    )


async def ended(rig: Rig, process: subprocess.Popen[bytes]) -> int:
    await polled(rig.reactor, lambda: process.poll() is not None)
    return int(process.returncode)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_at_a_signal(number: int) -> None:
    async def story() -> None:
        rig = Rig()
        process = spawn(rig)
        await rig.api.until(lambda: bool(rig.api.parked))
        process.send_signal(number)
        assert await ended(rig, process) == 0
        await rig.close()

    run(story())


def test_a_full_disk_under_its_log_stops_neither_its_work_nor_its_end() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}})
        port = free_port()
        full = os.open("/dev/full", os.O_WRONLY)
        process = spawn(rig, "--metrics-port", str(port), stderr=full)
        os.close(full)
        await rig.results(1)
        page = await treq.get(f"http://127.0.0.1:{port}/metrics", persistent=False)
        text = await page.text()
        assert "tagmill_worker_log_lines_lost 2.0" in text
        assert f'pid="{process.pid}"' in text and 'worker="worker-1"' in text
        said = rig.api.registered[0]
        assert (said.pid, said.host) == (process.pid, socket.gethostname())
        assert said.version == __version__
        process.send_signal(signal.SIGTERM)
        assert await ended(rig, process) == 0
        await rig.close()

    run(story())


def test_each_line_says_which_process_it_is_of() -> None:
    async def story() -> None:
        rig = Rig()
        process = spawn(rig, "--name", "twin")
        await rig.api.until(lambda: bool(rig.api.parked))
        process.send_signal(signal.SIGTERM)
        assert await ended(rig, process) == 0
        assert process.stderr is not None
        lines = [orjson.loads(line) for line in process.stderr.read().splitlines()]
        assert {line["pid"] for line in lines} == {process.pid}
        assert [line.get("worker") for line in lines] == [None, "worker-1", "worker-1"]
        await rig.close()

    run(story())


def test_draining_completes_the_running_partition_and_gives_the_others_back() -> None:
    async def story() -> None:
        rig = Rig()
        for key in (1, 2):
            rig.partition(key, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}, 2: {7: None}})
        process: Any = None

        def signal_and_stall(request: Any) -> Any:
            # The answer comes only when the worker has given the second partition back.
            process.send_signal(signal.SIGTERM)
            answer = rig.api.until(lambda: bool(rig.api.given_up))
            body = rig.api.behave(request)
            answer.addCallback(lambda _: (request.write(body), request.finish()))
            return mockapi.NOT_DONE_YET

        # Partition 1 is on its way back, and 2 is fetched but stuck in the server.
        rig.api.faults["batch"].extend([None, mockapi.never])
        rig.api.faults["complete"].append(signal_and_stall)
        process = spawn(rig)
        await rig.api.until(lambda: bool(rig.api.given_up))
        assert await ended(rig, process) == 0
        assert [message.leases for message in rig.api.given_up] == [["lease-2"]]
        assert [result.lease for result in rig.api.results] == ["lease-1"]
        await rig.close()

    run(story())


def test_a_killed_worker_takes_its_child_along_even_amid_an_evaluation() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, [BIG])
        rig.api.expressions = {7: ENDLESS}
        rig.api.work.append({1: {7: None}})
        process = spawn(rig)
        await rig.api.until(lambda: bool(rig.api.pages))
        (child,) = psutil.Process(process.pid).children()
        process.kill()
        await ended(rig, process)
        await polled(rig.reactor, lambda: not child.is_running())
        await rig.close()

    run(story())


def test_a_wrong_token_ends_with_code_2_and_says_what_to_do() -> None:
    async def story() -> None:
        rig = Rig()
        process = spawn(rig, token="tmw_wrong_one")
        assert await ended(rig, process) == 2
        assert process.stderr is not None
        assert b"TAGMILL_WORKER_TOKEN" in process.stderr.read()
        await rig.close()

    run(story())


def test_a_second_signal_ends_at_once_and_metrics_are_served_until_then() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, [BIG])
        rig.api.expressions = {7: ENDLESS}
        rig.api.work.append({1: {7: None}})
        port = free_port()
        process = spawn(rig, "--metrics-port", str(port))
        await rig.api.until(lambda: bool(rig.api.pages))
        page = await treq.get(f"http://127.0.0.1:{port}/metrics", persistent=False)
        assert "tagmill_worker_leases_total 1.0" in await page.text()
        process.send_signal(signal.SIGTERM)
        await polled(rig.reactor, lambda: b"draining" in os.read(stderr(process), 65536))
        process.send_signal(signal.SIGTERM)
        assert await ended(rig, process) == 128 + signal.SIGTERM
        await rig.close()

    run(story())


def stderr(process: subprocess.Popen[bytes]) -> int:
    assert process.stderr is not None
    return process.stderr.fileno()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
