"""A request that Django answers first, and this server in the end: what Django says is kept."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers

from api.server.http import Request

# Headers about the body, which may become another one.
OF_BODY = frozenset({b"content-length", b"content-encoding", b"content-type", b"retry-after"})


class Captured:
    """Stands for the request before Django's resource: `headers` and `body` are kept, and nothing
    is sent. On the reactor thread alone."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.code = 500
        self.responseHeaders = Headers()
        self.body = b""
        self._done: Deferred[None] = Deferred()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def rendered(self, django: Any) -> Deferred[None]:
        """Fires when Django has answered. A client that leaves cancels it."""
        django.render(self)
        return self._done

    def setResponseCode(self, code: int, message: bytes | None = None) -> None:
        self.code = code

    def write(self, data: bytes) -> None:
        self.body += data

    def finish(self) -> None:
        self._done.callback(None)

    def loseConnection(self) -> None:
        self._request.loseConnection()

    def pass_on(self) -> None:
        """Answer with what Django has said."""
        self._request.setResponseCode(self.code)
        self.copy_headers(self.responseHeaders)
        self._request.write(self.body)
        self._request.finish()

    def pass_headers_on(self) -> None:
        """Pass the headers on that are not about the body."""
        found = self.responseHeaders.getAllRawHeaders()
        self.copy_headers(Headers({k: v for k, v in found if k.lower() not in OF_BODY}))

    def copy_headers(self, headers: Headers) -> None:
        for name, values in headers.getAllRawHeaders():
            for value in values:
                self._request.responseHeaders.addRawHeader(name, value)
