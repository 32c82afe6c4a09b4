"""When processes are started again, who leads, what is killed: the parent alone, with a clock."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from api.server import child, pools
from api.server.board import AWAY, CONNECTIONS, PID, Board, Slot
from api.server.sharing import IMPATIENT_SECONDS, YIELD_SECONDS, SharedPort
from api.server.supervisor import (
    AFTER_DRAIN_SECONDS,
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    STEADY_SECONDS,
    Supervisor,
)
from tagmill import config, cores
from tagmill.config import Config
from tagmill.errors import ConfigurationError


class Process:
    """What Twisted gives for one that was started."""

    def __init__(self, protocol: Any, pid: int) -> None:
        self.protocol = protocol
        self.pid = pid
        self.said = b""
        self.signals: list[str] = []

    def writeToChild(self, descriptor: int, data: bytes) -> None:
        assert descriptor == child.CONTROL
        self.said += data

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)

    def say_ready(self) -> None:
        self.protocol.childDataReceived(child.STATUS, child.READY)

    def end(self, code: int | None = None, signalled: int | None = None) -> None:
        value = SimpleNamespace(exitCode=code, signal=signalled)
        self.protocol.processExited(SimpleNamespace(value=value))


class Reactor(Clock):
    """Twisted's clock, with processes and an end."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Process] = []
        self.triggers: dict[str, Any] = {}
        self.stops = 0
        self.is_full = False

    def spawnProcess(self, protocol: Any, *_: Any, env: dict[str, str], **__: Any) -> Process:
        if self.is_full:
            raise OSError(errno.EAGAIN, "no more processes")
        process = Process(protocol, 100 + len(self.started))
        process.slot = int(env["_TAGMILL_SLOT"])  # type: ignore[attr-defined]
        protocol.makeConnection(process)
        self.started.append(process)
        return process

    def addSystemEventTrigger(self, phase: str, _: str, call: Any) -> None:
        self.triggers[phase] = call

    def stop(self) -> None:
        self.stops += 1


class Family:
    def __init__(self, processes: int, run_maintenance: bool = True) -> None:
        self.reactor = Reactor()
        listener = socket.create_server(("127.0.0.1", 0))
        asked = Config(processes=processes)
        self.supervisor = Supervisor(self.reactor, asked, listener, run_maintenance)
        self.directory = self.supervisor.directory
        self.board = self.supervisor.board
        self.supervisor.start()

    @property
    def last(self) -> Process:
        return self.reactor.started[-1]


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family(2)
    for process in made.reactor.started:
        process.say_ready()
    yield made
    made.reactor.triggers["after"]()


def test_who_dies_again_and_again_is_started_ever_later(family: Family) -> None:
    pauses = []
    gauges = family.directory / "gauge_livesum_2.db"
    with capture_logs() as lines:
        for _ in range(9):
            before = len(family.reactor.started)
            gauges.touch()
            family.last.end(signalled=signal.SIGKILL)
            assert family.board.get(2, CONNECTIONS) == AWAY
            assert not gauges.exists(), "a dead process has no connections"
            (call,) = family.reactor.getDelayedCalls()
            pauses.append(call.getTime() - family.reactor.seconds())
            family.reactor.advance(pauses[-1])
            assert len(family.reactor.started) == before + 1
            family.last.say_ready()
    assert pauses[:3] == [FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS, 4 * FIRST_DELAY_SECONDS]
    assert pauses[-1] == LONGEST_DELAY_SECONDS
    ended = [line for line in lines if line.get("action") == "restart"]
    assert ["advice" in line for line in ended[:3]] == [False, False, True]
    assert "TAGMILL_PROCESSES" in ended[-1]["advice"]


def test_a_system_without_room_for_a_process_is_asked_again(family: Family) -> None:
    family.reactor.is_full = True
    family.last.end(signalled=signal.SIGKILL)
    family.reactor.advance(FIRST_DELAY_SECONDS)
    assert len(family.reactor.started) == 2
    family.reactor.is_full = False
    family.reactor.advance(2 * FIRST_DELAY_SECONDS)
    assert len(family.reactor.started) == 3


def test_who_has_lived_for_a_while_is_started_at_once(family: Family) -> None:
    family.last.end(code=1)
    family.reactor.advance(FIRST_DELAY_SECONDS)
    family.last.say_ready()
    family.reactor.advance(STEADY_SECONDS)
    before = len(family.reactor.started)
    family.last.end(code=1)
    family.reactor.advance(0)
    assert len(family.reactor.started) == before + 1
    assert family.board.get(2, PID) == family.last.pid


def test_the_periodic_tasks_are_for_one_that_is_ready() -> None:
    family = Family(3)
    first, second, third = family.reactor.started
    second.say_ready()
    first.say_ready()
    third.say_ready()
    assert [process.said for process in (first, second, third)] == [b"", child.LEAD, b""]
    # Somebody else leads on, and goes on when the next one comes.
    second.end(signalled=signal.SIGSEGV)
    assert [process.said for process in (first, third)] == [child.LEAD, b""]
    family.reactor.advance(FIRST_DELAY_SECONDS)
    family.last.say_ready()
    assert family.last.said == b""
    # Nobody is ready: the first that will be.
    for process in (first, third, family.last):
        process.end(code=1)
    family.reactor.advance(LONGEST_DELAY_SECONDS)
    family.last.say_ready()
    assert family.last.said == child.LEAD
    family.reactor.triggers["after"]()


def test_without_maintenance_nobody_leads() -> None:
    family = Family(2, run_maintenance=False)
    for process in family.reactor.started:
        process.say_ready()
    assert [process.said for process in family.reactor.started] == [b"", b""]
    family.reactor.triggers["after"]()


@pytest.mark.parametrize(("code", "exits"), [(2, 2), (1, 1)])
def test_a_server_whose_processes_do_not_start_ends(code: int, exits: int) -> None:
    family = Family(2)
    for process in family.reactor.started:
        process.end(code=code)
    assert family.reactor.stops == 1
    assert family.supervisor.exit_code == exits
    family.reactor.triggers["after"]()


def test_who_does_not_end_in_time_is_killed_and_the_exit_code_says_so(family: Family) -> None:
    first, second = family.reactor.started
    ended: Deferred[None] = family.reactor.triggers["before"]()
    assert (first.signals, second.signals) == (["TERM"], ["TERM"])
    first.end(code=0)
    assert not ended.called
    seconds = config.load().drain_seconds + AFTER_DRAIN_SECONDS
    family.reactor.advance(seconds - 1)
    assert second.signals == ["TERM"]
    family.reactor.advance(1)
    assert second.signals == ["TERM", "KILL"]
    second.end(signalled=signal.SIGKILL)
    assert ended.called
    assert family.supervisor.exit_code == 1
    # Nobody takes its place.
    assert len(family.reactor.started) == 2


def test_all_that_end_in_time_make_a_success(family: Family) -> None:
    family.last.end(signalled=signal.SIGKILL)
    ended: Deferred[None] = family.reactor.triggers["before"]()
    family.reactor.started[0].end(code=0)
    assert ended.called
    assert family.supervisor.exit_code == 0
    assert not family.reactor.getDelayedCalls()


# -- what processes share --------------------------------------------------------------------------


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board.made(tmp_path / "board", 2)


def test_the_board_is_one_for_all_who_open_it(board: Board, tmp_path: Path) -> None:
    mine, theirs = Slot(board, 1), Slot(Board(tmp_path / "board", 2), 2)
    assert (mine.all_connections, mine.is_ahead) == (0, False)
    mine.connections = 3
    assert not mine.is_ahead, "the other accepts none"
    theirs.connections = 3
    assert (mine.all_connections, mine.is_ahead, theirs.is_ahead) == (6, False, False)
    mine.connections = 4
    assert (theirs.all_connections, mine.is_ahead, theirs.is_ahead) == (7, True, False)


class Port:
    """Twisted's port, as far as it is used."""

    numberAccepts = 100

    def __init__(self, accept: Callable[[], None]) -> None:
        self.doRead = accept


class Acceptor:
    """A reactor with one port, whose connections are what waits for it."""

    def __init__(self, slot: Slot) -> None:
        self.clock = Clock()
        self.callLater, self.seconds = self.clock.callLater, self.clock.seconds
        self.slot = slot
        self.waiting = 0
        self.readers: set[Any] = set()
        self.addReader, self.removeReader = self.readers.add, self.readers.discard

    def adoptStreamPort(self, *_: Any) -> Any:
        return Port(self._accept)

    def _accept(self) -> None:
        if self.waiting:
            self.waiting -= 1
            self.slot.connections += 1


def test_who_is_ahead_leaves_a_connection_to_others_for_a_moment(board: Board) -> None:
    mine, theirs = Slot(board, 1), Slot(board, 2)
    reactor = Acceptor(mine)
    port = SharedPort(reactor, socket.create_server(("127.0.0.1", 0)), None, mine)
    mine.connections, theirs.connections, reactor.waiting = 5, 4, 1
    port.doRead()
    assert (reactor.waiting, port in reactor.readers) == (1, False)
    # The other process has taken it.
    reactor.waiting, theirs.connections = 0, 5
    reactor.clock.advance(YIELD_SECONDS)
    assert (mine.connections, port in reactor.readers) == (5, True)
    # Nobody takes the next two: the first one late, the second at once.
    mine.connections, reactor.waiting = 6, 2
    port.doRead()
    reactor.clock.advance(YIELD_SECONDS)
    assert reactor.waiting == 1
    port.doRead()
    assert reactor.waiting == 0
    # After a while the others are given a chance again.
    reactor.clock.advance(IMPATIENT_SECONDS)
    reactor.waiting = 1
    port.doRead()
    assert reactor.waiting == 1


def test_each_process_has_its_part_of_what_is_bounded() -> None:
    whole = Config(processes=4)
    part = whole.of_one_process()
    assert part.unread_bytes * 4 == whole.unread_bytes
    assert part.body_cache_bytes * 4 == whole.body_cache_bytes
    assert part.connections_per_address * 4 == whole.connections_per_address
    assert part.connections == whole.connections, "counted by all of them together"
    assert [whole.part(most) for most in (0, 1, 4, 9)] == [0, 1, 1, 2]
    assert Config(processes=1).of_one_process() == Config(processes=1)


def test_each_process_keeps_connections_of_its_own_to_the_database() -> None:
    """As docs/server.md says."""
    found = [
        pools.connections(Config(processes=processes), run_maintenance)
        for processes in (1, 2, 4)
        for run_maintenance in (True, False)
    ]
    assert found == [50, 45, 2 * 43 + 5, 2 * 43, 4 * 43 + 5, 4 * 43]


def test_auto_is_the_cores_there_are(tmp_path: Path, configure: Any) -> None:
    configure(processes="auto")
    assert config.load().processes == cores.available()
    quota = tmp_path / "cpu.max"
    all_cores = cores.available(quota)
    for text, found in (("max 100000", all_cores), ("50000 100000", 1), ("9900000 100000", None)):
        quota.write_text(text)
        assert cores.available(quota) == (all_cores if found is None else found)


def test_a_wrong_number_in_the_environment_is_named(configure: Any) -> None:
    for wrong in ("0", "two", "-1", "1.5", ""):
        configure(processes=wrong)
        with pytest.raises(ConfigurationError, match=f"TAGMILL_PROCESSES='{wrong}'"):
            config.load()


def test_the_parents_variable_without_a_parent_is_named(tmp_path: Path) -> None:
    script = "from api.server import child; child.place(1, 2)"
    environment = {**os.environ, "_TAGMILL_SLOT": "1", "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    prelude = "import django; django.setup(); "
    environment["DJANGO_SETTINGS_MODULE"] = "tagmill.settings"
    ended = subprocess.run(
        [sys.executable, "-c", prelude + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "_TAGMILL_SLOT is set by Tagmill itself" in ended.stderr
