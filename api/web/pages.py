"""The frame of the workbench's pages, and how somebody gets in and out. The rest is the API's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.contrib.auth import login, logout
from django.contrib.auth.forms import AuthenticationForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from rest_framework.request import Request
from rest_framework.views import APIView

from api import codes
from api.login import LoginThrottle
from api.rights import most, role_of
from api.roles import Role
from api.web import files, links
from tagmill.config import load

# Nothing inline, nothing from anywhere else. CodeMirror's squiggles are images in its style sheet.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
LOOPBACK = frozenset({"127.0.0.1", "::1"})
LINK_ENDED = "The link has been used, or has ended: log in with a name and a password."
OIDC_ENDED = {
    "refused": "The login was refused: your account may have no role here. Ask an administrator.",
    "away": "The login provider does not answer. Try again, or use a name and a password.",
}
TOO_MANY = "Too many attempts to log in: wait {} seconds."

View = Callable[..., HttpResponse]


def _page(view: View) -> View:
    """Under the policy, and never from a cache: it says who is logged in."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        found = view(request, *args, **kwargs)
        found["Content-Security-Policy"] = POLICY
        found["Referrer-Policy"] = "same-origin"
        return found

    return cast(View, never_cache(answer))


@_page
@require_safe
@ensure_csrf_cookie
def shell(request: HttpRequest, **_: str) -> HttpResponse:
    """Every page of the workbench: which one, the browser finds in the address."""
    user = request.user
    if not user.is_authenticated:
        there = urlencode({"next": request.get_full_path()})
        return HttpResponseRedirect(f"{reverse('login')}?{there}")
    context = {"base": files.address(""), "user": user, "role": role_of(user).label}
    may = {
        right.label for right in (Role.VIEWER, Role.OPERATOR, Role.ADMIN) if right in role_of(user)
    }
    if Role.VIEWER in most(user):
        # A role in some clusters is enough for the pages of nodes.
        may.add("nodes")
    return render(request, "web/shell.html", {**context, "may": " ".join(sorted(may))})


@_page
@require_http_methods(["GET", "HEAD", "POST"])
def log_in(request: HttpRequest) -> HttpResponse:
    there = _inside(request, request.POST.get("next") or request.GET.get("next") or "/")
    if request.method != "POST":
        if request.user.is_authenticated:
            return HttpResponseRedirect(there)
        return _form(request, AuthenticationForm(request), there)
    throttle = LoginThrottle()
    # It looks at META alone, which Django's request has as well; there is no view of DRF's.
    if not throttle.allow_request(cast(Request, request), cast(APIView, None)):
        seconds = int(throttle.wait()) + 1
        answer = _form(request, AuthenticationForm(request), there, TOO_MANY.format(seconds))
        answer.status_code = 429
        answer["Retry-After"] = str(seconds)
        return answer
    form = AuthenticationForm(request, request.POST)
    if not form.is_valid():
        return _form(request, form, there)
    login(request, form.get_user())
    return HttpResponseRedirect(there)


def oidc_begin(request: HttpRequest) -> HttpResponse:
    """To the provider that people log in at."""
    return _oidc("begin", request)


def oidc_callback(request: HttpRequest) -> HttpResponse:
    """Back from it."""
    return _oidc("callback", request)


def _oidc(name: str, request: HttpRequest) -> HttpResponse:
    if not load().oidc_issuer:
        raise Http404("nobody logs in by OpenID Connect here (TAGMILL_OIDC_ISSUER)")
    # Its libraries are there where it is on.
    from api import oidc

    answer: HttpResponse = getattr(oidc, name)(request)
    return answer


@_page
@require_safe
def follow(request: HttpRequest, token: str) -> HttpResponse:
    """A link of `links.make`. Behind proxies every request seems to come from this machine, and
    there is no telling whose it is."""
    is_local = request.META.get("REMOTE_ADDR") in LOOPBACK and not load().trusted_proxies
    user = links.take(token) if is_local and request.method == "GET" else None
    if user is None:
        return _form(request, AuthenticationForm(request), "/", LINK_ENDED)
    login(request, user)
    return HttpResponseRedirect("/")


@_page
@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponseRedirect(reverse("login"))


@_page
@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """All codes of problems."""
    context = {"base": files.address(""), "codes": codes.CODES.items()}
    return render(request, "web/problems.html", context)


@_page
@require_safe
def problem(request: HttpRequest, code: str) -> HttpResponse:
    """Where the `type` of a problem leads: what it means, and what to do."""
    about = codes.CODES.get(code)
    if about is None:
        raise Http404(f"no problem has the code {code!r}")
    members = [(name, codes.MEMBERS[name][1]) for name in about.members]
    context = {"base": files.address(""), "code": code, "about": about, "members": members}
    return render(request, "web/problem.html", context)


def _form(
    request: HttpRequest, form: AuthenticationForm, there: str, said: str = ""
) -> HttpResponse:
    errors = [said] if said else [str(text) for text in form.non_field_errors()]
    if not errors and (why := OIDC_ENDED.get(request.GET.get("oidc", ""))):
        errors = [why]
    has_oidc = bool(load().oidc_issuer)
    context = {"base": files.address(""), "form": form, "next": there, "errors": errors}
    context["oidc"] = f"{reverse('oidc-begin')}?{urlencode({'next': there})}" if has_oidc else ""
    return render(request, "web/login.html", context)


def _inside(request: HttpRequest, address: str) -> str:
    """The address, where it is one of this server's."""
    is_ours = url_has_allowed_host_and_scheme(
        address, {request.get_host()}, require_https=request.is_secure()
    )
    return address if is_ours else "/"
