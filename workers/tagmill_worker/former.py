"""Who this worker was before it started again: what it holds on its disk was that one's share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import structlog
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.threads import deferToThreadPool

FILE = "worker"
UUID = re.compile("[0-9a-f-]{36}")
# A disk that takes longer is of no use to anybody.
ANSWER_SECONDS = 10.0

log = structlog.get_logger("workers.shares")


class Former:
    """Remembered in the directory of the cache, where there is one, and in memory. A disk that
    fails costs no more than the place that the worker had: nothing is raised but CancelledError."""

    def __init__(self, reactor: Any, directory: str) -> None:
        self._reactor = reactor
        self._path = Path(directory) / FILE if directory else None
        self._worker: str | None = None

    async def read(self) -> str | None:
        if self._worker is None and self._path is not None:
            self._worker = await self._ask(_read, self._path)
        return self._worker

    async def write(self, worker: str) -> None:
        self._worker = worker
        if self._path is not None:
            await self._ask(_write, self._path, worker)

    async def _ask(self, work: Any, *arguments: Any) -> Any:
        pool = self._reactor.getThreadPool()
        asked: Deferred[Any] = deferToThreadPool(self._reactor, pool, work, *arguments)
        asked.addTimeout(ANSWER_SECONDS, self._reactor)
        try:
            return await asked
        except (OSError, TimeoutError) as error:
            log.warning("no word of who it was", action="former_failed", error=str(error))
            return None


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(errors="replace")[:100].strip()
    except FileNotFoundError:
        return None
    return text if UUID.fullmatch(text) else None


def _write(path: Path, worker: str) -> None:
    """Whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(worker)
    beside.replace(path)
