"""One child process: how it is started, and the frames to it and from it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tagmill_worker.evaluators import frames, note
from tagmill_worker.evaluators.child import NOTE_DESCRIPTOR

# The child needs none, and evaluates what other people wrote.
SECRETS = "TAGMILL_WORKER_TOKEN"


class Owner(Protocol):
    def ready(self) -> None: ...

    def answered(self, message: dict[str, Any], vocabulary: bytes) -> None: ...

    def saved(self, message: dict[str, Any]) -> None: ...

    def ended(self, child: ChildProcess, status: str) -> None: ...


@dataclass(frozen=True)
class ChildOptions:
    """`evaluator` by name; bytes of images that the child may hold; the share of documents that the
    reference is asked about, too; bytes that the child may take beside the images, 0 for any."""

    evaluator: str
    image_bytes: int = 0
    shadow: float = 0.0
    evaluation_bytes: int = 0

    def arguments(self) -> list[str]:
        most = self.image_bytes + self.evaluation_bytes if self.evaluation_bytes else 0
        numbers = (os.getpid(), self.image_bytes, self.shadow, most)
        return [self.evaluator, *map(str, numbers)]


class ChildProcess(ProcessProtocol):
    """One child process; `owner` is called with what it says, and when it has ended."""

    transport: Any = None

    def __init__(self, owner: Owner, reader: note.Reader) -> None:
        self.note = reader
        self.is_ready = False
        self.gone: Deferred[None] = Deferred()
        self._owner = owner
        self._buffer = frames.Buffer()

    @property
    def pid(self) -> int | None:
        return self.transport.pid if self.transport else None

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        self.transport.write(frames.pack(header, body))

    def kill(self) -> None:
        if self.transport is not None and self.transport.pid is not None:
            self.transport.signalProcess("KILL")

    def outReceived(self, data: bytes) -> None:
        for header, body in self._buffer.feed(data):
            if "ready" in header:
                self.is_ready = True
                self._owner.ready()
            elif "saved" in header:
                self._owner.saved(header)
            else:
                self._owner.answered(header, body)

    def processEnded(self, reason: Failure) -> None:
        self.is_ready = False
        self._owner.ended(self, reason.getErrorMessage())
        self.gone.callback(None)


def spawn(reactor: Any, owner: Owner, options: ChildOptions) -> ChildProcess:
    descriptor = note.create()
    child = ChildProcess(owner, note.Reader(descriptor))
    reactor.spawnProcess(
        child,
        sys.executable,
        [sys.executable, "-m", "tagmill_worker.evaluators.child", *options.arguments()],
        env=_environment(),
        childFDs={0: "w", 1: "r", 2: 2, NOTE_DESCRIPTOR: descriptor},
    )
    os.close(descriptor)
    return child


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != SECRETS}
