"""Several processes behind one address: started, started again when one dies, ended together.

The parent holds the socket and accepts nothing. Each child inherits it (`api/server/child.py`), so
that what waits to be accepted outlives whoever dies. Children see by a pipe that their parent has
gone. One of them runs the periodic tasks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import multiprocess
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol

from api import metrics
from api.server import child
from api.server.board import AWAY, CONNECTIONS, PID, RESTARTS, Board
from api.server.listening import bracketed
from tagmill.config import Config

log = structlog.get_logger("tagmill.server")

# Who has lived this long is started again at once; who has not, after a pause that doubles.
STEADY_SECONDS = 10.0
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
# Short lives in a row after which the log says what to do.
MANY = 3
# For what comes after the requests of a child: the end of its threads, and its last log lines.
AFTER_DRAIN_SECONDS = 8.0
WRONG_SETTING = 2


class Child(ProcessProtocol):
    """One process, from its start to its end."""

    def __init__(self, parent: Supervisor, slot: int, now: float) -> None:
        self.parent = parent
        self.slot = slot
        self.pid = 0
        self.started_at = now
        self.is_ready = False

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        if childFD == child.STATUS and child.READY in data:
            self.is_ready = True
            self.parent.ready(self)

    def processExited(self, reason: Any) -> None:
        # Not processEnded, which waits for everybody who might have inherited a pipe.
        self.parent.ended(self, reason.value.exitCode, reason.value.signal)

    def lead(self) -> None:
        transport: Any = self.transport
        transport.writeToChild(child.CONTROL, child.LEAD)

    def kill(self, name: str) -> None:
        transport: Any = self.transport
        with contextlib.suppress(ProcessExitedAlready):
            transport.signalProcess(name)


class Supervisor:
    """`start` starts the processes, `exit_code` is known when the reactor has ended."""

    def __init__(
        self,
        reactor: Any,
        config: Config,
        listener: socket.socket,
        run_maintenance: bool,
        command: Sequence[str] = (sys.executable, "-m", "tagmill_command", "serve"),
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._listener = listener
        self._run_maintenance = run_maintenance
        self._command = command
        self.directory = Path(tempfile.mkdtemp(prefix="tagmill-serve-"))
        # Who tidies up old temporary files leaves alone what is locked.
        self._lock = os.open(self.directory, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.board = Board.made(self.directory / child.BOARD, config.processes)
        self.board.set(0, PID, os.getpid())
        self._children: dict[int, Child] = {}
        self._short_lives = dict.fromkeys(self.board.slots, 0)
        self._starting: dict[int, Any] = {}
        self._leader: Child | None = None
        self._was_ready = False
        self._is_stopping = False
        self._all_ended: Deferred[None] = Deferred()
        self.exit_code = 0

    def start(self) -> None:
        self._reactor.addSystemEventTrigger("before", "shutdown", self._drain)
        self._reactor.addSystemEventTrigger("after", "shutdown", self._clean)
        for slot in self.board.slots:
            self._spawn(slot)

    # -- children --------------------------------------------------------------------------------

    def _spawn(self, slot: int) -> None:
        self._starting.pop(slot, None)
        made = Child(self, slot, self._reactor.seconds())
        self._children[slot] = made
        descriptors = {
            **{number: number for number in (0, 1, 2)},
            child.LISTENER: self._listener.fileno(),
            child.CONTROL: "w",
            child.STATUS: "r",
        }
        try:
            transport = self._reactor.spawnProcess(
                made,
                self._command[0],
                self._command,
                env=self._environment(slot),
                childFDs=descriptors,
            )
        except OSError as error:
            # The system has no room for another process, or for its pipes; later it may.
            del self._children[slot]
            self._replace(made, f"not started ({error.strerror})")
            return
        made.pid = transport.pid
        self.board.set(slot, PID, made.pid)

    def _environment(self, slot: int) -> Mapping[str, str]:
        return {
            **os.environ,
            "TAGMILL_LISTEN": self._config.listen,
            "TAGMILL_PROCESSES": str(self._config.processes),
            metrics.DIRECTORY: str(self.directory),
            metrics.SLOT: str(slot),
        }

    def ready(self, made: Child) -> None:
        if self._leader is None:
            self._elect()
        if not self._was_ready and all(found.is_ready for found in self._children.values()):
            self._was_ready = True
            host, port = self._listener.getsockname()[:2]
            log.info(
                "ready",
                url=f"http://{bracketed(host)}:{port}",
                pid=os.getpid(),
                processes=self._config.processes,
            )

    def ended(self, made: Child, code: int | None, signalled: int | None) -> None:
        del self._children[made.slot]
        self.board.set(made.slot, CONNECTIONS, AWAY)
        self.board.set(made.slot, PID, 0)
        multiprocess.mark_process_dead(made.slot, str(self.directory))
        if self._leader is made:
            self._leader = None
            self._elect()
        if self._is_stopping:
            self._ended_in_time(made, code, signalled)
        elif not self._was_ready and code is not None:
            self._fail(made, code)
        else:
            self._replace(made, how(code, signalled))

    def _fail(self, made: Child, code: int) -> None:
        """At the start of the server: it has said why it ends, and the next would say the same."""
        if not self.exit_code:
            self.exit_code = WRONG_SETTING if code == WRONG_SETTING else 1
            log.error("the server does not start: see the line above", process=made.slot)
            self._reactor.stop()

    def _replace(self, made: Child, ended: str) -> None:
        lived = self._reactor.seconds() - made.started_at
        was_short = lived < STEADY_SECONDS or not made.is_ready
        lives = self._short_lives[made.slot] + 1 if was_short else 0
        self._short_lives[made.slot] = lives
        delay = min(FIRST_DELAY_SECONDS * 2 ** (lives - 1), LONGEST_DELAY_SECONDS) if lives else 0.0
        log.error(
            "a process of the server has ended: another takes its place",
            action="restart",
            ended=ended,
            pid=made.pid,
            process=made.slot,
            restart_in=delay,
            **({"advice": advice(ended)} if lives >= MANY else {}),
        )
        self.board.set(made.slot, RESTARTS, self.board.get(made.slot, RESTARTS) + 1)
        self._starting[made.slot] = self._reactor.callLater(delay, self._spawn, made.slot)

    def _elect(self) -> None:
        """The periodic tasks are for one that is ready: where none is, the first that will be."""
        if not self._run_maintenance or self._is_stopping:
            return
        for slot in sorted(self._children):
            if self._children[slot].is_ready:
                self._leader = self._children[slot]
                self._leader.lead()
                log.info("the periodic tasks have a process", action="lead", process=slot)
                return

    # -- the end ---------------------------------------------------------------------------------

    def _drain(self) -> Deferred[None]:
        log.info("draining", processes=len(self._children))
        self._is_stopping = True
        self._listener.close()
        for starting in self._starting.values():
            starting.cancel()
        for made in list(self._children.values()):
            made.kill("TERM")
        seconds = self._config.drain_seconds + AFTER_DRAIN_SECONDS
        deadline = self._reactor.callLater(seconds, self._kill)
        self._all_ended.addCallback(lambda _: deadline.active() and deadline.cancel())
        self._look_whether_all_ended()
        return self._all_ended

    def _kill(self) -> None:
        for made in list(self._children.values()):
            log.error("a process does not end in time: killed", process=made.slot, action="kill")
            made.kill("KILL")

    def _ended_in_time(self, made: Child, code: int | None, signalled: int | None) -> None:
        # One that had not begun to listen for the signal is ended by it.
        is_well = code == 0 or signalled == signal.SIGTERM
        if not is_well:
            log.error("a process ended badly", process=made.slot, ended=how(code, signalled))
            self.exit_code = self.exit_code or 1
        self._look_whether_all_ended()

    def _look_whether_all_ended(self) -> None:
        if not self._children and not self._all_ended.called:
            self._all_ended.callback(None)

    def _clean(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)
        log.info("stopped")


def how(code: int | None, signalled: int | None) -> str:
    if signalled is not None:
        return f"killed by signal {signalled} ({signal.Signals(signalled).name})"
    return f"exit code {code}"


def advice(ended: str) -> str:
    """For a process that ends again and again."""
    if "SIGKILL" in ended:
        return (
            "where the system kills it for lack of memory, lower TAGMILL_PROCESSES; the others go"
            " on meanwhile"
        )
    return (
        "its own last lines above say why; the others go on meanwhile, and a restart of the server"
        " shows whether its settings are right"
    )
