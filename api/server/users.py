"""Who a request comes from: a user token, the admin's session, or a worker token. In a thread."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, parse_cookie
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import PermissionDenied

from api import authentication, problems, rights
from api.rights import Scope
from api.roles import Role
from tagmill.errors import TagmillError
from tagmill.work import workers
from tagmill_wire.messages import TOKEN_SCHEME

SCHEME = "Token"

Shown = tuple[str, str]
"""An Authorization header, and a session's key."""


def operator(header: str, session: str = "") -> None:
    """Raises Unauthorized or Forbidden unless the Authorization header, or without one the session,
    is an operator's."""
    _take(Role.OPERATOR, header, session)


class Admitted(NamedTuple):
    """Somebody, and where they may do what they ask for."""

    user: Any
    scope: Scope


def uploaders(shown: Iterable[Shown]) -> dict[Shown, Admitted | TagmillError]:
    """Who uploads inventory with each of these, in one look at all tokens, and into which clusters;
    or the error."""
    wanted = set(shown)
    known = authentication.users_for_headers({header for header, _ in wanted if header})
    found: dict[Shown, Admitted | TagmillError] = {}
    for header, session in wanted:
        try:
            user = known.get(header) if header else _user_of_session(session)
            found[header, session] = Admitted(user, _scope(user, Role.UPLOADER))
        except TagmillError as error:
            found[header, session] = error
    return found


def viewer(header: str, session: str = "") -> Any:
    """The same for viewers. A session counts: an EventSource sends no header. The user."""
    return _take(Role.VIEWER, header, session)


def reader(header: str, session: str = "") -> tuple[int, bool]:
    """As `viewer`: the user's key, and whether the user may see workers and previews."""
    user = _take(Role.VIEWER, header, session)
    return int(user.pk), rights.may(user, Role.OPERATOR)


def scope(needed: Role, header: str, session: str = "") -> Scope:
    """The clusters in which the role is theirs. Raises Unauthorized; Forbidden where there is
    none."""
    return _scope(_user_or_none(header, session), needed)


def _scope(user: Any, needed: Role) -> Scope:
    found = rights.find(_somebody(user), needed)
    if found is None:
        raise problems.Forbidden(rights.refusal(needed))
    return found


def _take(needed: Role, header: str, session: str) -> Any:
    return _with_role(_user_or_none(header, session), needed)


def _with_role(user: Any, needed: Role) -> Any:
    user = _somebody(user)
    if not rights.may(user, needed):
        raise problems.Forbidden(rights.refusal(needed))
    return user


def known(header: str, session: str = "") -> None:
    """Raises Unauthorized unless somebody's: a worker's, too. What they may do is not asked."""
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != TOKEN_SCHEME.lower():
        _user(header, session)
    elif workers.authenticate(token.strip()) is None:
        raise problems.Unauthorized("the worker token is wrong or revoked", TOKEN_SCHEME)


def somebody(header: str, session: str = "") -> int:
    """The key of the user, whatever they may do. Raises Unauthorized."""
    return int(_user(header, session).pk)


def shown_by(request: Any) -> Shown:
    """The Authorization header, and the session's key. Call it on the reactor thread."""
    cookie = request.getCookie(settings.SESSION_COOKIE_NAME.encode()) or b""
    return request.getHeader("authorization") or "", cookie.decode("ascii", "replace")


def form_of(request: Any) -> Any:
    """What tells a page of ours from one of another site that sends a browser's session. Call it on
    the reactor thread."""
    made = HttpRequest()
    made.method = request.method.decode("ascii", "replace")
    made.META = {"SERVER_NAME": "", "SERVER_PORT": "0"}
    for name, values in request.requestHeaders.getAllRawHeaders():
        key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        made.META[key] = ",".join(value.decode("latin-1") for value in values)
    made.COOKIES = parse_cookie(made.META.get("HTTP_COOKIE", ""))
    return made


def refuse_forged(form: Any) -> None:
    """Raises Refused where Django would not take the session for this request."""
    try:
        SessionAuthentication().enforce_csrf(form)
    except PermissionDenied as error:
        detail = f"{error.detail} Reload the page, or send a token instead."
        raise problems.Refused(403, "csrf_failed", detail) from None


def _user(header: str, session: str) -> Any:
    return _somebody(_user_or_none(header, session))


def _user_or_none(header: str, session: str) -> Any:
    if header:
        return authentication.user_for_header(header)
    return _user_of_session(session)


def _somebody(user: Any) -> Any:
    if user is None:
        raise problems.Unauthorized("send Authorization: Token <token>, or log in", SCHEME)
    return user


def _user_of_session(key: str) -> Any:
    if not key:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(request)
    return user if user.is_authenticated and user.is_active else None
