"""A real redis-server process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis

from tests.support.daemon import START_SECONDS, Daemon


class Redis(Daemon):
    """A server in memory alone."""

    program = "redis-server"

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self.url = f"redis://127.0.0.1:{self.port}/1"
        self.client = redis.Redis(port=self.port, db=1, socket_timeout=START_SECONDS)
        self.start()

    def arguments(self) -> list[str]:
        in_memory = ["--save", "", "--appendonly", "no", "--dir", "/"]
        return ["--port", str(self.port), "--bind", "127.0.0.1", *in_memory]

    def is_ready(self) -> bool:
        with suppress(redis.RedisError, OSError):
            return bool(self.client.ping())
        return False

    def contents(self) -> dict[bytes, Any]:
        found = {key: self.client.get(key) for key in self.client.scan_iter()}
        # What was evicted meanwhile is not there.
        return {key: value for key, value in found.items() if value is not None}

    def load(self, contents: dict[bytes, Any]) -> None:
        for key, value in contents.items():
            self.client.set(key, value)

    def stop(self) -> None:
        super().stop()
        self.client.close()
