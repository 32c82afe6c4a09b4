"""Large bodies are read when their sender is known; those of strangers stay in their sockets."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from api.server.http import Request
from api.server.native import shown


class Admission:
    """Holds a body back until `check` has answered; refuses the request when it fails.

    What arrives in the meantime is what the socket had delivered already: one read of it.
    """

    def __init__(self, request: Request, check: Deferred[None]) -> None:
        self._request = request
        self._expects = request.requestHeaders.hasHeader(b"expect")
        # Twisted would ask for the body at once.
        request.requestHeaders.removeHeader(b"expect")
        self._is_over = False
        self.hold()
        check.addCallbacks(self._admitted, self._refused)

    def hold(self) -> None:
        """Read nothing more for now."""
        if not self._is_over:
            self._request.channel.hold()

    def end(self) -> None:
        """The body is complete, or the client has gone: there is nothing to hold back."""
        if not self._is_over:
            self._is_over = True
            self._request.channel.release()

    def _admitted(self, _: None) -> None:
        if not self._is_over:
            if self._expects:
                self._request.channel._send100Continue()
            self.end()

    def _refused(self, failure: Failure) -> None:
        if not self._is_over:
            self._request.fail(shown(failure.value, self._request))
            self.end()
