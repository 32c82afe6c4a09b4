"""Who asks: a person by a token or the admin's session, or a worker by a worker token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from rest_framework import exceptions
from rest_framework.authentication import (
    BaseAuthentication,
    TokenAuthentication,
    get_authorization_header,
)
from rest_framework.request import Request

from api import tokens
from tagmill.work import workers
from tagmill.work.models import WorkerToken
from tagmill_wire.messages import TOKEN_SCHEME

WRONG_WORKER_TOKEN = "the worker token is wrong or revoked."  # noqa: S105 - a message


# How a user's token may be sent: clients that are generated say Bearer.
SCHEMES = ("token", "bearer")


class UserTokenAuthentication(TokenAuthentication):
    """`Authorization: Token ...`, or `Bearer ...`; `request.auth` is the UserToken, and the user's
    role is limited to the token's."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        scheme = get_authorization_header(request).partition(b" ")[0].decode("latin-1")
        if scheme.lower() in SCHEMES:
            # What the base class looks for is that of this request.
            self.keyword = scheme
        found: tuple[User, Any] | None = super().authenticate(request)
        return found

    def authenticate_header(self, request: Request) -> str:
        return "Token"

    def authenticate_credentials(self, key: str) -> tuple[User, Any]:
        found = tokens.find(key)
        if found is None:
            raise exceptions.AuthenticationFailed("The token is wrong, expired or revoked.")
        return found.user, found


class WorkerTokenAuthentication(BaseAuthentication):
    """`Authorization: Worker tmw_...`; `request.auth` is the WorkerToken."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, WorkerToken] | None:
        scheme, _, token = get_authorization_header(request).partition(b" ")
        if scheme.lower() != TOKEN_SCHEME.lower().encode():
            return None
        found = workers.authenticate(token.strip().decode("ascii", "replace"))
        if found is None:
            raise exceptions.AuthenticationFailed(WRONG_WORKER_TOKEN)
        return AnonymousUser(), found

    def authenticate_header(self, request: Request) -> str:
        return TOKEN_SCHEME


def user_for_header(header: str) -> User | None:
    """As `users_for_headers`, of one."""
    return users_for_headers([header]).get(header)


def users_for_headers(headers: Iterable[str]) -> dict[str, User]:
    """The active users whose tokens these Authorization headers hold, each limited to the token's
    role; without those that hold none."""
    token_of = {}
    for header in headers:
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() in SCHEMES and token.strip():
            token_of[header] = token.strip()
    found = tokens.find_all(set(token_of.values())) if token_of else {}
    return {header: found[token].user for header, token in token_of.items() if token in found}
