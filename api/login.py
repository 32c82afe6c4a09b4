"""Where passwords are tried: one budget for `auth/token` and for the admin's login page."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from rest_framework.request import Request
from rest_framework.views import APIView

from api.counters import MinuteThrottle
from tagmill.program import NAME

MAX_LOGINS_PER_MINUTE = 10

PAGE = """<!doctype html>
<html lang="en"><head><title>Too many attempts | Tagmill</title></head>
<body><h1>Too many attempts to log in</h1>
<p>Wait {seconds} seconds, then <a href="{path}">log in again</a>. Who has lost the password asks an
administrator: <code>{program} create_user</code> sets a new one.</p></body></html>"""


class LoginThrottle(MinuteThrottle):
    """Guessing passwords from one address. Who is logged in may guess those of others no faster."""

    scope = "login"

    def limit(self) -> int:
        return MAX_LOGINS_PER_MINUTE

    def who(self, request: Request) -> str:
        return str(self.get_ident(request))


def _too_many(request: HttpRequest, seconds: int) -> HttpResponse:
    """A page, for people; with the link back to the form."""
    page = format_html(PAGE, seconds=seconds, path=request.path, program=NAME)
    return HttpResponse(page, status=429, headers={"Retry-After": str(seconds)})


class Site(AdminSite):
    """The admin's, with a login page that is throttled."""

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        throttle = LoginThrottle()
        # It looks at META alone, which Django's request has as well; there is no view of DRF's.
        asked, view = cast(Request, request), cast(APIView, None)
        if request.method == "POST" and not throttle.allow_request(asked, view):
            return _too_many(request, int(throttle.wait()) + 1)
        answer: HttpResponse = super().login(request, extra_context)
        return answer
