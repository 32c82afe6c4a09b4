"""A real redis-server process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

import pytest
import redis

from loadtest.rig.stack import end_with_parent, free_port

MISSING = "there is no redis-server here: apt-get install redis-server"
START_SECONDS = 10.0


class Redis:
    """A server in memory alone, empty; it can be stopped, frozen and started again at the same
    port."""

    def __init__(self, *options: str) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip(MISSING)
        self._options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/1"
        self.client = redis.Redis(port=self.port, db=1, socket_timeout=START_SECONDS)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < end, "redis-server does not start"
            # It ends where a connection of somebody else's has its port at this moment.
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawned()
            time.sleep(0.005)

    def _spawned(self) -> subprocess.Popen[bytes]:
        settings = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/")
        return subprocess.Popen(
            ["redis-server", "--port", str(self.port), *settings, *self._options],
            stdout=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it calls the kernel alone
        )

    def _answers(self) -> bool:
        with suppress(redis.RedisError, OSError):
            return bool(self.client.ping())
        return False

    def contents(self) -> dict[bytes, Any]:
        """All that it has."""
        found = {key: self.client.get(key) for key in self.client.scan_iter()}
        # What was evicted meanwhile is not there.
        return {key: value for key, value in found.items() if value is not None}

    def restart(self, contents: dict[bytes, Any]) -> None:
        """It comes back with what it had at some time."""
        self.stop()
        self.start()
        for key, value in contents.items():
            self.client.set(key, value)

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
        self.client.close()
