"""Where the server's log goes: a thread writes it, so that nothing waits or fails by its log."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque

import structlog

from api import metrics

log = structlog.get_logger("tagmill.server")

# Beyond, lines are left out until the log takes some again: a pipe that nobody reads, or a disk
# that stands still.
MAX_WAITING = 4 * 1024 * 1024
# How long the end of the process waits for the last lines.
DRAIN_SECONDS = 2.0


class Sink:
    """A stream for whole lines. `write` returns at once and raises nothing.

    Lines that cannot be written, as where the disk is full, and those that find no room are counted
    and left out; the log says how many as soon as it can.
    """

    def __init__(self, descriptor: int = 2, most: int = MAX_WAITING) -> None:
        self.lost = 0
        self._said = 0
        self._descriptor = descriptor
        self._most = most
        # Written by whoever logs, read by the thread; `_size` and `lost` with it.
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, line: str) -> None:
        data = line.encode(errors="replace")
        with self._changed:
            if self._size + len(data) > self._most:
                self._lose()
                return
            self._lines.append(data)
            self._size += len(data)
            self._changed.notify_all()

    def flush(self) -> None:
        """Each line is on its way already."""

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait until all is written, for so long at most."""
        end = time.monotonic() + seconds
        with self._changed:
            while (self._lines or self._is_writing) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _run(self) -> None:
        is_torn = False
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                line = self._lines.popleft()
                self._size -= len(line)
                self._is_writing = True
            # The next line must not continue what is there of one that was cut short.
            is_whole, began = self._write(b"\n" + line if is_torn else line)
            is_torn = not is_whole and (began or is_torn)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                if not is_whole:
                    self._lose()
            if is_whole:
                self._tell()

    def _write(self, data: bytes) -> tuple[bool, bool]:
        """Whether all of it was written, and whether some was."""
        left = data
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            return False, len(left) < len(data)
        return True, True

    def _lose(self) -> None:
        self.lost += 1
        metrics.LOST_LOG_LINES.inc()

    def _tell(self) -> None:
        """After a line that was written: how many were not, once for all of them."""
        with self._changed:
            lost, self._said = self.lost - self._said, self.lost
        if lost:
            log.warning("the log could not be written for a while", action="log_lost", lines=lost)


class Handler(logging.StreamHandler[Sink]):
    """Gives the lines to a sink, and waits for it at the end of the process."""

    def close(self) -> None:
        self.stream.drain()
        super().close()
