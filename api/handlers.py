"""Problem documents in place of what DRF and Django answer to errors: their handlers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

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

from api import problems
from api.problems import Forbidden, Refused
from tagmill.errors import NotFound, TagmillError, TooLarge

UNKNOWN_HOST = (
    "this server does not answer to the name in the Host header: list it in TAGMILL_ALLOWED_HOSTS"
    " on the server, or use one that is there"
)
NO_SUCH_PAGE = "nothing is served at this address: /api/docs/ lists what is"


def exception_handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """DRF's EXCEPTION_HANDLER: answers every exception, and rolls the transaction back."""
    # DRF's views import this module: its settings name it.
    from rest_framework.views import set_rollback

    set_rollback()
    return respond(error)


def respond(error: BaseException) -> HttpResponse:
    found = problems.shown(_translated(error))
    answer = HttpResponse(problems.document(found), status=found.status)
    for name, value in problems.headers(found).items():
        answer[name] = value
    return answer


def _translated(error: BaseException) -> BaseException:
    """What the frameworks raise, as ours."""
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    if isinstance(error, Http404):
        return NotFound(str(error) or NO_SUCH_PAGE)
    if isinstance(error, PermissionDenied):
        return Forbidden(str(error) or "you may not do this")
    if isinstance(error, RequestDataTooBig):
        return TooLarge("the request is too large: send less at a time")
    if isinstance(error, DisallowedHost):
        return Refused(400, "unknown_host", UNKNOWN_HOST)
    if isinstance(error, BadRequest | SuspiciousOperation):
        return Refused(400, "bad_request", "the request is malformed")
    return error


def _of_framework(error: exceptions.APIException) -> TagmillError:
    if isinstance(error, exceptions.ValidationError):
        errors = list(_flatten(error.detail))
        field, detail = errors[0]
        named = [{"field": field, "detail": detail} for field, detail in errors]
        return Refused(400, "invalid", detail, field=field or None, errors=named)
    code, detail, extra = _framework_code(error)
    scheme = getattr(error, "auth_header", None)
    return Refused(error.status_code, code, detail, scheme=scheme, **extra)


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


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404: what the URL resolver does not know."""
    if request.path.startswith("/admin/"):
        return defaults.page_not_found(request, exception)
    return respond(NotFound(NO_SUCH_PAGE))


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
    return respond(
        Refused(
            403, "csrf_failed", "the form has expired: go back, reload the page and send it again"
        )
    )
