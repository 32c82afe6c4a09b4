"""Machines die in the middle of a rebuild, and every tag comes out true."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from loadtest.rig.stack import Stack
from tagmill_worker.evaluators import base
from tests.system.conftest import System

DISPLAY = "//node[@class='display']"
NVIDIA = "//node[@class='display']/vendor[contains(.,'NVIDIA')]"
COUNT = "count(//node[@class='network']) > 2"
# Each of the nested counts is over every element: a document of 400 takes hours.
# Each element looks at all that follow it, one by one, and so do these, and these.
RUNAWAY = (
    "count(//*[count(following::*[count(following::*/following::*[position() mod 2 = 1])"
    " > 9999]) > 9999]) > 1"
)
# The kernel's are quick; where it is, those of lxml run among the proofs.
EVALUATORS = (
    ["kernel", pytest.param("lxml", marks=pytest.mark.proof)] if base.has_kernel() else ["lxml"]
)


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_two_workers_tag_a_fleet_as_lxml_would(system: System, evaluator: str) -> None:
    system.stack.start_workers(2, "--evaluator", evaluator)
    for name, definition in (("display", DISPLAY), ("nvidia", NVIDIA), ("count", COUNT)):
        system.tag(name, definition)
    system.wait(
        lambda: all(system.state(name) == "ready" for name in ("display", "nvidia", "count"))
    )
    system.assert_true("display", "nvidia", "count")
    assert {row["evaluator"] for row in system.api.get("workers/")["results"]} == {evaluator}


@contextlib.contextmanager
def fetching(system: System) -> Iterator[None]:
    """worker-1 has asked for its first page and has not got it."""
    # The tag first: a worker with nothing else to do fetches for the vocabulary.
    system.tag("display", DISPLAY)
    with system.held_up("LOCK TABLE document IN ACCESS EXCLUSIVE MODE") as until:
        system.stack.start_workers(1)
        until("%One page of a partition's nodes%")
        # It may have asked for what it is to own before it was leased anything.
        system.wait(lambda: system.holds_a_lease("worker-1"))
        yield


@contextlib.contextmanager
def evaluating(system: System) -> Iterator[None]:
    """The child of worker-1 hangs."""
    system.stack.start_workers(1)
    system.freeze_evaluation("worker-1")
    system.tag("display", DISPLAY)
    system.wait(lambda: system.holds_a_lease("worker-1"))
    yield


@contextlib.contextmanager
def completing(system: System) -> Iterator[None]:
    """worker-1 has sent its first results, and the server is about to accept them."""
    system.tag("display", DISPLAY)
    with system.held_up("SELECT FROM partition FOR NO KEY UPDATE") as until:
        system.stack.start_workers(1)
        until("%FROM%partition%FOR NO KEY UPDATE%")
        yield


@pytest.mark.parametrize(
    "moment", [fetching, pytest.param(evaluating, marks=pytest.mark.proof), completing]
)
def test_a_worker_killed_in_the_middle_loses_nothing(
    system: System, moment: Callable[[System], AbstractContextManager[None]]
) -> None:
    with moment(system):
        assert system.holds_a_lease("worker-1")
        worker = system.process("worker-1")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    another = Stack(system.stack.listen, system.stack.token, system.stack.log / "another")
    try:
        another.start_workers(1)
        system.wait(lambda: system.state("display") == "ready")
        system.assert_true("display")
    finally:
        another.stop()


def test_a_server_killed_in_the_middle_loses_nothing(system: System) -> None:
    system.stack.start_workers(1)
    system.freeze_evaluation("worker-1")
    system.tag("display", DISPLAY)
    system.wait(lambda: system.holds_a_lease("worker-1"))
    server = system.process("server")
    server.send_signal(signal.SIGKILL)
    server.wait()
    system.stack.start_server()
    system.connect()
    for child in system.process("worker-1").children():
        child.resume()
    system.wait(lambda: system.state("display") == "ready")
    system.assert_true("display")


def test_a_worker_told_to_stop_finishes_what_it_has(system: System) -> None:
    system.stack.start_workers(2)
    system.tag("display", DISPLAY)
    worker = system.process("worker-1")
    worker.send_signal(signal.SIGTERM)
    worker.wait()
    system.wait(lambda: system.state("display") == "ready")
    system.assert_true("display")


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_an_expression_that_runs_away_fails_and_all_others_proceed(
    system: System, evaluator: str
) -> None:
    system.stack.start_workers(2, "--evaluator", evaluator)
    system.tag("runaway", RUNAWAY)
    system.tag("display", DISPLAY)
    system.wait(lambda: system.state("runaway") == "failed" and system.state("display") == "ready")
    assert "stopped after" in system.api.get("tags/runaway")["failure"]
    system.assert_true("display")
