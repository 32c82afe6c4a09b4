"""Errors of the native endpoints, and how they become RFC 9457 problem documents.

TagmillError
├── Unauthorized        401 unauthorized
├── Forbidden           403 forbidden
└── MethodNotAllowed    405 method_not_allowed
"""

from __future__ import annotations

from http import HTTPStatus

from api.encoding import dumps
from api.problems import CONTENT_TYPE, RETRY_AFTER_SECONDS
from tagmill.errors import TagmillError


class Unauthorized(TagmillError):
    status, code = 401, "unauthorized"

    def __init__(self, detail: str, scheme: str) -> None:
        super().__init__(detail)
        self.scheme = scheme


class Forbidden(TagmillError):
    status, code = 403, "forbidden"


class MethodNotAllowed(TagmillError):
    status, code = 405, "method_not_allowed"

    def __init__(self, *allowed: str) -> None:
        super().__init__(f"only {', '.join(allowed)} is allowed here")
        self.allowed = allowed


def document(error: TagmillError) -> bytes:
    return dumps(
        {
            "type": "about:blank",
            "title": HTTPStatus(error.status).phrase,
            "status": error.status,
            "code": error.code,
            "detail": error.detail,
            **error.extra,
        }
    )


def headers(error: TagmillError) -> dict[str, str]:
    """The headers that go with the document."""
    found = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
    if isinstance(error, Unauthorized):
        found["WWW-Authenticate"] = error.scheme
    if isinstance(error, MethodNotAllowed):
        found["Allow"] = ", ".join(error.allowed)
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        found["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return found
