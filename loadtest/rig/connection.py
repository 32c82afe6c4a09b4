"""The HTTP client of simulated workers: many in one reactor, which take as little CPU as can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol

from tagmill_wire import zstd

MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Answer:
    """`head`: the lines before the body, as they came."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        wanted = f"{name}:".lower().encode()
        for line in self.head.split(b"\r\n"):
            if line[: len(wanted)].lower() == wanted:
                return line[len(wanted) :].strip().decode("latin-1")
        return None

    @property
    def unpacked(self) -> bytes:
        """The body, which may be zstd."""
        if self.header("Content-Encoding") != "zstd":
            return self.body
        return zstd.unpack(self.body, MAX_BYTES)


class Connection(Protocol):
    """As much of HTTP/1.1 as the server's answers need: one request at a time, Content-Length.

    An own client, since treq costs more CPU for a request than the server does to answer it.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._answer: Deferred[Answer] | None = None
        self._head: tuple[int, int, bytes] | None = None
        self.is_open = True

    def ask(self, request: bytes) -> Deferred[Answer]:
        """Fails with ConnectionError when the connection breaks."""
        self._answer = Deferred()
        answer = self._answer
        if self.is_open and self.transport is not None:
            self.transport.write(request)  # type: ignore[call-arg, misc]
        else:
            self._finish(ConnectionError("closed"))
        return answer

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._data[:end])
            lines = head.lower().split(b"\r\n")
            del self._data[: end + 4]
            sizes = [line[15:] for line in lines if line.startswith(b"content-length:")]
            self._head = int(lines[0].split()[1]), int(sizes[0]) if sizes else 0, head
        status, size, head = self._head
        if len(self._data) >= size:
            body = bytes(self._data[:size])
            del self._data[:size]
            self._head = None
            self._finish(Answer(status, head, body))

    def connectionLost(self, reason: Any = None) -> None:
        self.is_open = False
        self._finish(ConnectionError("lost"))

    def close(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abortConnection()

    def _finish(self, result: Answer | Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if isinstance(result, Exception):
            answer.errback(result)
        else:
            answer.callback(result)
