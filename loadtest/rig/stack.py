"""A running Tagmill: one API server and some workers, as the processes a user would start."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
CACHE_BYTES = ("--cache-bytes", "2GiB")
STOP_SECONDS = 30
# linux/prctl.h
PR_SET_PDEATHSIG = 1


class StackError(Exception):
    """A process did not start; the message says which, and ends with what it printed."""


class Stack:
    """Processes against the database of this process's DATABASE_URL.

    `log` is the directory for their output: server.log, worker-1.log, ... `environment` is theirs
    beside this process's, and before it. `root`: the checkout whose programs they are.
    """

    def __init__(
        self,
        listen: str,
        worker_token: str,
        log: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
        root: Path = ROOT,
    ) -> None:
        self.url = f"http://{listen}"
        self.listen = listen
        self.log = log
        self.token = worker_token
        self._environment = environment
        self._root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[str, ...]] = {}
        log.mkdir(parents=True, exist_ok=True)

    def start_server(self, *options: str) -> None:
        self._spawn("server", "serve", "--listen", self.listen, *options)
        self._wait_until_ready()

    def start_workers(self, count: int, *options: str, cache: Path | None = None) -> None:
        """`cache`: where each of them has a directory of its own for what it holds."""
        for number in range(1, count + 1):
            self.start_worker(f"worker-{number}", *options, cache=cache)

    def start_worker(self, name: str, *options: str, cache: Path | None = None) -> None:
        """One of a name of its own, which begins with `worker-`; `cache` as of `start_workers`."""
        kept = () if cache is None else ("--cache-dir", str(cache / name), *CACHE_BYTES)
        self._spawn(name, "worker", "--server", self.url, "--name", name, *kept, *options)

    def end_worker(self, name: str, number: int) -> None:
        """Send a signal that ends it, and wait for that."""
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(STOP_SECONDS)

    def stop_workers(self) -> None:
        self._stop([name for name in self._processes if name.startswith("worker-")])

    def stop(self) -> None:
        self.stop_workers()
        self._stop(list(self._processes))

    def signal_server(self, number: int) -> subprocess.Popen[bytes]:
        """Send a signal to the server; its process, to wait for."""
        server = self._processes["server"]
        server.send_signal(number)
        return server

    def revive(self) -> list[str]:
        """Start again whatever has ended, as a service manager does; the names."""
        ended = self.has_ended()
        for name in ended:
            self._spawn(name, *self._commands[name])
        return ended

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def parked_polls(self) -> int:
        """How many workers wait at the server for work, by its metrics."""
        with urlopen(f"{self.url}/metrics", timeout=5) as answer:  # noqa: S310 - our URL
            for line in answer.read().decode().splitlines():
                if line.startswith("tagmill_parked_polls "):
                    return int(float(line.split()[1]))
        return 0

    def has_ended(self) -> list[str]:
        """The names of the processes that have."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def check(self) -> None:
        """Raises StackError when a process has ended."""
        for name in self.has_ended():
            raise StackError(self._last_words(name))

    def _spawn(self, name: str, *arguments: str) -> None:
        environment = {**os.environ, **self._environment, "TAGMILL_WORKER_TOKEN": self.token}
        if self._root != ROOT:
            # It finds its own packages.
            environment.pop("PYTHONPATH", None)
        if arguments[0] == "worker":
            environment.pop("DATABASE_URL", None)
        self._commands[name] = arguments
        with (self.log / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, str(self._root / "manage.py"), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                # Ctrl-C goes to the parent, which stops its children in order.
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - it makes one call
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            if self._is_ready():
                return
            time.sleep(0.05)
        raise StackError(f"the API server was not ready within {START_SECONDS} s")

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/readyz", timeout=5) as answer:  # noqa: S310 - our URL
                return bool(answer.status == HTTPStatus.OK)
        except (URLError, OSError):
            return False

    def _last_words(self, name: str) -> str:
        lines = (self.log / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return f"{name} ended: " + " / ".join(lines[-5:])

    def _stop(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                self._processes[name].send_signal(signal.SIGTERM)
        for name in names:
            process = self._processes.pop(name)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# Opened here: a child that was forked beside other threads opens nothing.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Called in the child: on Linux it ends with a parent that is killed; elsewhere it stays."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, number)


@contextlib.contextmanager
def running(stack: Stack) -> Iterator[Stack]:
    """Stops every process on the way out, whatever happened."""
    try:
        yield stack
    finally:
        stack.stop()


def free_port() -> int:
    """A port of loopback that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(listen: str) -> bool:
    host, _, port = listen.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError:
            return False
    return True
