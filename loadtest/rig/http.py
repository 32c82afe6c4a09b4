"""A small REST client for the demo and the benchmarks: JSON in, JSON out, problems as errors."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

import orjson


class ApiProblem(Exception):
    """The API answered with a problem document."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status} {problem.get('code', '')}: {problem.get('detail', '')}")
        self.status = status
        self.problem = problem


class Api:
    """One kept-alive connection to `base` (`http://127.0.0.1:8080`), with a user's token."""

    def __init__(self, base: str, token: str, seconds: float = 60) -> None:
        self.base = base
        url = urlsplit(base)
        self._connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=seconds)
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, {} if body is None else body, **headers)

    def put_xml(self, path: str, xml: bytes) -> Any:
        headers = {**self._headers, "Content-Type": "application/xml"}
        return self._answer("PUT", path, xml, headers)

    def post_lines(self, path: str, body: bytes) -> list[Any]:
        """NDJSON in, NDJSON out: the decoded lines of the answer."""
        headers = {**self._headers, "Content-Type": "application/x-ndjson"}
        lines: list[Any] = self._answer("POST", path, body, headers, is_lines=True)
        return lines

    def delete(self, path: str) -> Any:
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The decoded answer; raises ApiProblem for 4xx and 5xx, OSError when nobody answers."""
        data = None if body is None else orjson.dumps(body)
        return self._answer(method, path, data, self._headers | headers)

    def _answer(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
        is_lines: bool = False,
    ) -> Any:
        try:
            response = self._send(method, path, data, headers)
        except ConnectionError:
            # The server closes a connection that was idle for a minute, as during a long rebuild.
            self._connection.close()
            response = self._send(method, path, data, headers)
        text = response.read()
        is_good = response.status < http.client.BAD_REQUEST
        if is_lines and is_good:
            return [orjson.loads(line) for line in text.splitlines()]
        answer = orjson.loads(text) if text else None
        if not is_good:
            raise ApiProblem(response.status, answer if isinstance(answer, dict) else {})
        return answer

    def _send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        self._connection.request(method, f"/api/v1/{path}", data, headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()
