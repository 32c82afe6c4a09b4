"""A real server process of a cache, which tests freeze, stop and start again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from loadtest.rig.stack import end_with_parent, free_port

START_SECONDS = 10.0


class Daemon:
    """A program that listens at one port of this host; it starts empty.

    `contents()` is all that it has.
    """

    program: str

    def __init__(self, *options: str) -> None:
        if shutil.which(self.program) is None:
            pytest.skip(f"there is no {self.program} here: apt-get install {self.program}")
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def load(self, contents: dict[Any, Any]) -> None:
        raise NotImplementedError

    def start(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert time.monotonic() < end, f"{self.program} does not start"
            # It ends where a connection of another process has its port at this moment.
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawned()
            time.sleep(0.005)

    def _spawned(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.program, *self.arguments(), *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it calls the kernel alone
        )

    def restart(self, contents: dict[Any, Any]) -> None:
        """It comes back with what it had at some time."""
        self.stop()
        self.start()
        self.load(contents)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def seconds_frozen(server: Daemon, read: Callable[[int], object], reads: int = 200) -> float:
    """How long so many reads take while a server is frozen; each finds nothing."""
    server.freeze()
    began = time.monotonic()
    for number in range(reads):
        assert read(number) is None
    taken = time.monotonic() - began
    server.thaw()
    return taken
