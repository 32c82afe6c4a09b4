"""The requests of one simulated worker, one after the other on one connection."""

from __future__ import annotations

from loadtest.rig.behaviour import Fleet
from loadtest.rig.connection import Answer, Connection
from tagmill_wire import messages

GOOD = (200, 201)


class Refused(Exception):
    def __init__(self, path: str, status: int) -> None:
        super().__init__(f"{path} {status}")
        self.status = status


class Calls:
    def __init__(self, fleet: Fleet, token: str) -> None:
        self._fleet = fleet
        self._token = token
        self._connection: Connection | None = None

    def close(self) -> None:
        """The next request has another connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    async def post(self, path: str, message: messages.Message, wait: int = 0) -> bytes:
        prefer = f"Prefer: wait={wait}\r\n" if wait else ""
        return (await self.ask("POST", path, messages.dump(message), prefer)).body

    async def ask(self, method: str, path: str, body: bytes | None, headers: str) -> Answer:
        """A good answer. Raises Refused, or an OSError."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._fleet.connect()
        answer = await self._connection.ask(self._request(method, path, body, headers))
        self._fleet.report.round_trips += 1
        self._fleet.report.received_bytes += len(answer.body)
        if answer.status not in GOOD:
            raise Refused(path.partition("?")[0].rpartition("/")[2], answer.status)
        return answer

    def _request(self, method: str, path: str, body: bytes | None, headers: str = "") -> bytes:
        data = body or b""
        kind = "Content-Type: application/json\r\n" if body is not None else ""
        head = (
            f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}"
            f"Authorization: {messages.TOKEN_SCHEME} {self._token}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data
