"""One process among those of a server: what it gets from its parent, and what it says to it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from api import metrics
from api.server.board import RESTARTS, Board, Slot
from tagmill.errors import ConfigurationError

log = structlog.get_logger("tagmill.server")

# The descriptors that it gets: the socket, a pipe that it reads until its parent is gone, and one
# that it writes.
LISTENER, CONTROL, STATUS = 3, 4, 5
READY, LEAD = b"r", b"l"
BOARD = "board"


@dataclass(frozen=True)
class Place:
    """`listener` is the socket of all processes."""

    slot: Slot
    listener: socket.socket
    directory: Path


def slot_of_environment() -> int | None:
    """The slot of this process, when a parent has started it."""
    found = os.environ.get(metrics.SLOT)
    return None if found is None else int(found)


def place(slot: int, processes: int) -> Place:
    """Takes what the parent has left. Raises ConfigurationError where there is no parent."""
    directory = Path(os.environ[metrics.DIRECTORY])
    try:
        for descriptor in (LISTENER, CONTROL, STATUS):
            os.set_inheritable(descriptor, False)
        listener = socket.socket(fileno=LISTENER)
    except OSError:
        raise ConfigurationError(f"{metrics.SLOT} is set by Tagmill itself: unset it") from None
    found = Place(Slot(Board(directory / BOARD, processes), slot), listener, directory)
    metrics.count_all_processes(found.slot.board.pids)
    return found


def ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; this one's parent passes it on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_once(reactor: Any) -> None:
    """The parent says SIGTERM, a service manager says it to every process as well, and people press
    Ctrl-C twice. Twisted would log an error."""
    asked = threading.Event()

    def stop(*_: Any) -> None:
        if not asked.is_set():
            asked.set()
            reactor.callFromThread(reactor.stop)

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, stop)


def say_ready(slot: Slot) -> None:
    metrics.RESTARTS.inc(slot.board.get(slot.number, RESTARTS))
    slot.board.set(slot.number, RESTARTS, 0)
    os.write(STATUS, READY)


def watch_parent(reactor: Any, directory: Path, lead: Callable[[], None]) -> None:
    """`lead` when the parent says so; and the end of this process with the parent's, at once: what
    is running would keep the address from the next one."""

    def read() -> None:
        while said := os.read(CONTROL, 1):
            if said == LEAD:
                reactor.callFromThread(lead)
        log.error("the parent process has ended, and so does this one", action="orphaned")
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=read, name="parent", daemon=True).start()
