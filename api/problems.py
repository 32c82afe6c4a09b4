"""Every error as an RFC 9457 problem document, whoever raised it: a view, DRF, Django, the domain.

TagmillError
├── Invalid
│   ├── UnknownField         400 unknown_field, `field` names it
│   └── MalformedBody        400 malformed_body, with `line` and `column` (1-based)
└── InvalidToken             401 unauthorized
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import psycopg
from django import db
from django.core.exceptions import (
    BadRequest,
    DisallowedHost,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from rest_framework import exceptions

from api.encoding import dumps
from tagmill.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    Invalid,
    NotFound,
    TagmillError,
    TooLarge,
)
from tagmill_wire.messages import WireError

log = logging.getLogger("tagmill.api")

CONTENT_TYPE = "application/problem+json"
# PostgreSQL restarts in a few seconds.
RETRY_AFTER_SECONDS = 2
OUTAGE = (db.OperationalError, db.InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
UNKNOWN_HOST = (
    "this server does not answer to the name in the Host header: list it in TAGMILL_ALLOWED_HOSTS"
    " on the server, or use one that is there"
)
NO_ANSWER = "the database does not answer: try again shortly"
DISK_FULL = "the database's disk is full: an administrator must make room; then send it again"
TOO_SLOW = (
    "the database took longer than TAGMILL_STATEMENT_SECONDS allows: ask for less at a time, or try"
    " again when it has less to do"
)
LOCKED = "another request was in the way for too long (TAGMILL_LOCK_SECONDS): try again shortly"
NO_SUCH_PAGE = "nothing is served at this address: /api/docs/ lists what is"


class UnknownField(Invalid):
    code = "unknown_field"


class MalformedBody(Invalid):
    code = "malformed_body"


def unfit(error: WireError) -> Invalid:
    """The error for a message to a worker's endpoint that does not fit the schema."""
    kind = UnknownField if error.problem.startswith("unknown field") else Invalid
    return kind(str(error), field=error.path or None)


class InvalidToken(TagmillError):
    status, code = 401, "unauthorized"


class ProblemResponse(HttpResponse):
    """A problem document. `extra` are members beyond the standard ones."""

    def __init__(self, status: int, code: str, detail: str, **extra: Any) -> None:
        members = {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "code": code,
            "detail": detail,
            **extra,
        }
        super().__init__(dumps(members), content_type=CONTENT_TYPE, status=status)
        self["Cache-Control"] = "no-store"
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self["Retry-After"] = str(RETRY_AFTER_SECONDS)


def exception_handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """DRF's EXCEPTION_HANDLER: answers every exception, and rolls the transaction back."""
    # DRF's views import this module: its settings name it.
    from rest_framework.views import set_rollback

    set_rollback()
    return respond(error)


def respond(error: BaseException) -> ProblemResponse:
    if isinstance(error, TagmillError):
        return _of_domain(error)
    if is_outage(error):
        return _of_domain(outage(error))
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    if isinstance(error, Http404):
        return _of_domain(NotFound(str(error) or NO_SUCH_PAGE))
    if isinstance(error, PermissionDenied):
        return ProblemResponse(403, "forbidden", str(error) or "you may not do this")
    if isinstance(error, RequestDataTooBig):
        return _of_domain(TooLarge("the request is too large: send less at a time"))
    if isinstance(error, DisallowedHost):
        return ProblemResponse(400, "unknown_host", UNKNOWN_HOST)
    if isinstance(error, BadRequest | SuspiciousOperation):
        return ProblemResponse(400, "bad_request", "the request is malformed")
    return _unexpected(error)


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


def _of_domain(error: TagmillError) -> ProblemResponse:
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(
        error, DatabaseUnavailable
    ):
        return _unexpected(error)
    answer = ProblemResponse(error.status, error.code, error.detail, **error.extra)
    if isinstance(error, InvalidToken):
        answer["WWW-Authenticate"] = "Token"
    return answer


def _of_framework(error: exceptions.APIException) -> ProblemResponse:
    if isinstance(error, exceptions.ValidationError):
        errors = list(_flatten(error.detail))
        field, detail = errors[0]
        return ProblemResponse(
            400,
            "invalid",
            detail,
            **({"field": field} if field else {}),
            errors=[{"field": field, "detail": detail} for field, detail in errors],
        )
    code, detail, extra = _framework_code(error)
    answer = ProblemResponse(error.status_code, code, detail, **extra)
    if header := getattr(error, "auth_header", None):
        answer["WWW-Authenticate"] = header
    if seconds := extra.get("retry_after"):
        answer["Retry-After"] = str(seconds)
    return answer


def _framework_code(error: exceptions.APIException) -> tuple[str, str, dict[str, Any]]:
    detail = str(error.detail)
    match error:
        case exceptions.NotAuthenticated():
            return "unauthorized", "send Authorization: Token <token>, or log in at /admin/", {}
        case exceptions.AuthenticationFailed():
            return "unauthorized", f"{detail} Ask an administrator for a new one.", {}
        case exceptions.PermissionDenied():
            if detail.startswith("CSRF Failed"):
                return "csrf_failed", f"{detail} Reload the page, or send a token instead.", {}
            return "forbidden", detail, {}
        case exceptions.NotFound():
            return "not_found", detail, {}
        case exceptions.MethodNotAllowed():
            return "method_not_allowed", f"{detail} The Allow header says what is.", {}
        case exceptions.NotAcceptable():
            return "not_acceptable", "this address does not offer what Accept asks for", {}
        case exceptions.UnsupportedMediaType():
            return "unsupported_media_type", f"{detail} /api/docs/ says what to send.", {}
        case exceptions.Throttled():
            wait: float | None = getattr(error, "wait", None)
            seconds = None if wait is None else int(wait) + 1
            return "throttled", f"too many attempts: wait {seconds} s", {"retry_after": seconds}
        case exceptions.ParseError():
            return "malformed_body", detail, {}
    return error.default_code, detail, {}


def _flatten(detail: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(field, message) of each error in DRF's nested detail; `a.b[2]` is a path."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            yield from _flatten(value, f"{path}.{name}" if path and name else path or name)
    elif isinstance(detail, list):
        for number, value in enumerate(detail):
            is_nested = isinstance(value, list | Mapping)
            if value:
                yield from _flatten(value, f"{path}[{number}]" if is_nested else path)
    else:
        yield path, str(detail)


def _unexpected(error: BaseException) -> ProblemResponse:
    """A bug: its details go to the log under an id, and only the id to the client."""
    request_id = uuid.uuid4().hex
    log.error("request failed", extra={"request_id": request_id}, exc_info=error)
    return ProblemResponse(
        500,
        "internal",
        "something went wrong in the server: its log says what, under this request_id",
        request_id=request_id,
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404: what the URL resolver does not know."""
    if request.path.startswith("/admin/"):
        return defaults.page_not_found(request, exception)
    return _of_domain(NotFound(NO_SUCH_PAGE))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400, as for a Host header that TAGMILL_ALLOWED_HOSTS lacks."""
    return respond(exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler403."""
    if request.path.startswith("/admin/"):
        return defaults.permission_denied(request, exception)
    return respond(exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: what failed outside of a DRF view."""
    return respond(sys.exc_info()[1] or RuntimeError("no exception"))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's CSRF_FAILURE_VIEW, for the forms of the admin."""
    return ProblemResponse(
        403, "csrf_failed", "the form has expired: go back, reload the page and send it again"
    )
