"""Who asks: a person by a token or the admin's session, or a worker by a worker token."""

from __future__ import annotations

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


class UserTokenAuthentication(TokenAuthentication):
    """`Authorization: Token ...`; `request.auth` is the UserToken, and the user's role is limited
    to the token's."""

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
    """The active user whose token an Authorization header holds, limited to the token's role; None
    when there is none."""
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "token" or not token.strip():
        return None
    found = tokens.find(token.strip())
    return None if found is None else found.user
