"""Who changes something over HTTP, for the audit."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from tagmill.audit.acting import Actor, acting
from tagmill.work.models import WorkerToken
from tagmill_wire import tracing

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class ActingMiddleware:
    """After the one that knows the session's user; DRF sets the token's user on the same request.
    The answer's `X-Request-Id` is the one in the audit."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request_id = request_id_of(request.headers.get("X-Request-Id"))
        with (
            acting(lambda: _actor(request, request_id)),
            tracing.at(request.headers.get(tracing.HEADER, "") if tracing.is_on() else ""),
            structlog.contextvars.bound_contextvars(request_id=request_id),
        ):
            answer = self._get_response(request)
        answer.setdefault("X-Request-Id", request_id)
        return answer


def request_id_of(sent: str | None) -> str:
    """The one that was sent, where it is one, or a new one."""
    return sent if sent and REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex


def _actor(request: HttpRequest, request_id: str) -> Actor:
    """Asked when something is changed: views know who asks only once they authenticated them."""
    token = getattr(request, "auth", None)
    if isinstance(token, WorkerToken):
        return Actor(token.name, "worker", request_id)
    is_admin = request.path.startswith(reverse("admin:index"))
    name = request.user.get_username()
    return Actor(name, "admin" if is_admin else "api", request_id)
