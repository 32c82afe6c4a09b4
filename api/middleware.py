"""What every answer of Django goes through, beside Django's own middleware."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse

BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def describe_no_body(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """An answer without a body says nothing about one: a cache copies the headers of a 304 onto the
    answer that it holds, which then has length 0."""

    def middleware(request: HttpRequest) -> HttpResponse:
        answer = get_response(request)
        if answer.status_code in BODILESS:
            for name in ("Content-Type", "Content-Length"):
                answer.headers.pop(name, None)
        return answer

    return middleware
