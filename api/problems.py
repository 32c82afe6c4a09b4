"""Every error as an RFC 9457 problem document, natively and from Django (api/handlers.py) alike.

TagmillError
├── Unauthorized               401 unauthorized, `scheme` is what to send
├── Forbidden                  403 forbidden
├── MethodNotAllowed           405 method_not_allowed
├── ConditionNotSupported      412 condition_not_supported
├── UnsupportedMedia           415 unsupported_media_type
├── RangeNotSatisfiable        416 range_not_satisfiable
├── Refused                    what Django or DRF refuses: it has a status and a code of its own
├── Internal                   500 internal: a bug, which is logged under the `request_id`
└── Invalid
    ├── UnknownField           400 unknown_field, `field` names it
    └── MalformedBody          400 malformed_body, with `line` and `column` (1-based)
"""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import Any

import psycopg
import structlog
from django import db

from api import codes
from api.encoding import dumps
from tagmill.errors import (
    CacheUnavailable,
    DatabaseBusy,
    DatabaseUnavailable,
    ImagesUnavailable,
    Invalid,
    TagmillError,
)

log = structlog.get_logger("tagmill.api")

CONTENT_TYPE = "application/problem+json"
# PostgreSQL restarts in a few seconds.
RETRY_AFTER_SECONDS = 2
OUTAGE = (db.OperationalError, db.InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
NO_ANSWER = "the database does not answer: try again shortly"
DISK_FULL = "the database's disk is full: an administrator must make room; then send it again"
TOO_SLOW = (
    "the database took longer than TAGMILL_STATEMENT_SECONDS allows: ask for less at a time, or try"
    " again when it has less to do"
)
LOCKED = "another request was in the way for too long (TAGMILL_LOCK_SECONDS): try again shortly"


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


class ConditionNotSupported(TagmillError):
    status, code = 412, "condition_not_supported"


class NotAcceptable(TagmillError):
    status, code = 406, "not_acceptable"


class UnsupportedMedia(TagmillError):
    status, code = 415, "unsupported_media_type"


class RangeNotSatisfiable(TagmillError):
    status, code = 416, "range_not_satisfiable"

    def __init__(self, detail: str, size: int) -> None:
        super().__init__(detail)
        self.size = size


class Refused(TagmillError):
    def __init__(
        self, status: int, code: str, detail: str, *, scheme: str | None = None, **extra: Any
    ) -> None:
        super().__init__(detail, **extra)
        self.status, self.code, self.scheme = status, code, scheme


class Internal(TagmillError):
    """The details go to the log under an id, and only the id to the client."""

    def __init__(self, error: BaseException | None, path: str = "") -> None:
        request_id = structlog.contextvars.get_contextvars().get("request_id") or uuid.uuid4().hex
        log.error("request failed", path=path, request_id=request_id, exc_info=error)
        super().__init__(
            "something went wrong in the server: its log says what, under this request_id",
            request_id=request_id,
        )


# What is out of order is no bug, and nobody else's secret.
UNAVAILABLE = (CacheUnavailable, DatabaseUnavailable, ImagesUnavailable, Internal)


class UnknownField(Invalid):
    code = "unknown_field"


class MalformedBody(Invalid):
    code = "malformed_body"


def shown(error: BaseException | None, path: str = "") -> TagmillError:
    """What a client is to know of an error that a domain function or a thread has raised."""
    if error is not None and is_outage(error):
        return outage(error)
    is_answer = isinstance(error, TagmillError) and (
        error.status < HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, UNAVAILABLE)
    )
    return error if isinstance(error, TagmillError) and is_answer else Internal(error, path)


def document(error: TagmillError) -> bytes:
    return dumps(
        {
            "type": codes.type_of(error.code),
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
    if isinstance(error, Unauthorized | Refused) and error.scheme:
        found["WWW-Authenticate"] = error.scheme
    if isinstance(error, MethodNotAllowed):
        found["Allow"] = ", ".join(error.allowed)
    if isinstance(error, RangeNotSatisfiable):
        found["Content-Range"] = f"bytes */{error.size}"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        found["Retry-After"] = str(RETRY_AFTER_SECONDS)
    elif "retry_after" in error.extra:
        found["Retry-After"] = str(error.extra["retry_after"])
    return found


def is_outage(error: BaseException | None) -> bool:
    """Whether the database was the cause, directly or wrapped (as Procrastinate wraps it)."""
    return caused_by(error, *OUTAGE)


def outage(error: BaseException) -> DatabaseUnavailable:
    """What an error of the database means to a client, and what to do about it."""
    if caused_by(error, psycopg.errors.DiskFull):
        return DatabaseUnavailable(DISK_FULL)
    if caused_by(error, psycopg.errors.QueryCanceled):
        return DatabaseBusy(TOO_SLOW)
    if caused_by(error, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return DatabaseBusy(LOCKED)
    return DatabaseUnavailable(NO_ANSWER)


def caused_by(error: BaseException | None, *kinds: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__
    return False
