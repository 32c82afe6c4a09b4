"""A process of simulated workers, and what is said to it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from loadtest.bench import BenchError
from loadtest.rig.behaviour import Behaviour
from loadtest.rig.stack import ROOT, end_with_parent

ANSWER_SECONDS = 60.0


class Generator:
    """One process of simulated workers."""

    def __init__(self, behaviour: Behaviour, log: Path) -> None:
        self._log = log / f"generator-{behaviour.process}.log"
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "loadtest.rig.simulated"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no threads here yet
            )
        self.pid = self._process.pid
        self._rest = b""
        self.say(asdict(behaviour))

    def check(self) -> None:
        """Raises BenchError when the process has ended, with the end of what it printed."""
        if self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise BenchError("a load generator ended: " + " / ".join(lines[-5:]))

    def say(self, message: dict[str, Any]) -> None:
        self.check()
        if self._process.stdin is None:
            raise BenchError("a load generator has no input")
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
        """The next line, or None when there is none within that time."""
        deadline = time.monotonic() + seconds
        output = self._process.stdout
        while b"\n" not in self._rest:
            left = max(0.0, deadline - time.monotonic())
            if output is None or not select.select([output], [], [], left)[0]:
                return None
            data = os.read(output.fileno(), 1 << 16)
            if not data:
                self._process.wait()
                self.check()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(orjson.loads(line))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # A pipe to a dead process may refuse its last bytes.
                with contextlib.suppress(OSError):
                    pipe.close()
