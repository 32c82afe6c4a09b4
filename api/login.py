"""Where passwords are tried: one budget for `auth/token` and for the admin's login page."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from rest_framework.request import Request
from rest_framework.throttling import AnonRateThrottle
from rest_framework.views import APIView

PAGE = """<!doctype html>
<html lang="en"><head><title>Too many attempts | Tagmill</title></head>
<body><h1>Too many attempts to log in</h1>
<p>Wait {seconds} seconds, then <a href="{path}">log in again</a>. Who has lost the password asks an
administrator: <code>manage.py create_user</code> sets a new one.</p></body></html>"""


class LoginThrottle(AnonRateThrottle):
    """Guessing passwords from one address; counted in each server process."""

    rate = "10/min"
    scope = "login"

    def get_cache_key(self, request: Request, view: APIView) -> str:
        # Who is logged in may guess the passwords of others no faster.
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}


def _too_many(request: HttpRequest, seconds: int) -> HttpResponse:
    """A page, for people; with the link back to the form."""
    page = format_html(PAGE, seconds=seconds, path=request.path)
    return HttpResponse(page, status=429, headers={"Retry-After": str(seconds)})


class Site(AdminSite):
    """The admin's, with a login page that is throttled."""

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        throttle = LoginThrottle()
        # It looks at META alone, which Django's request has as well; there is no view of DRF's.
        asked, view = cast(Request, request), cast(APIView, None)
        if request.method == "POST" and not throttle.allow_request(asked, view):
            return _too_many(request, int(throttle.wait() or 0) + 1)
        answer: HttpResponse = super().login(request, extra_context)
        return answer
