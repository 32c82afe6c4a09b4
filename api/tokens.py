"""Users' tokens: issued, found by their digest, recorded when they are used."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from api.models import UserToken
from api.rights import limit_role, most
from api.roles import GROUPS, Role
from tagmill import sql
from tagmill.config import load
from tagmill.errors import Conflict, Invalid, NotFound
from tagmill.program import NAME

SECRET_BYTES = 32
KEY_CHARACTERS = 15
MAX_DAYS = 36_500
# What the query `tokens` reads of both, in the order of their models; the rest is read when it is
# asked for.
TOKEN_FIELDS = ("id", "digest", "key", "user_id", "role", "is_login")
USER_FIELDS = ("id", "is_superuser", "username", "is_staff", "is_active")
# A token that is used all the time is written once in so long.
USE_RECORDED_EVERY = timedelta(minutes=1)


class TooManyTokens(Conflict):
    code = "too_many_tokens"


def create(
    username: str, role: str | None = None, days: float | None = None, name: str = ""
) -> tuple[UserToken, str]:
    """A token and its plaintext, which is never seen again. Its role is the one named, at most the
    user's, or the user's as it is now; nobody's role is changed. Where the user is missing, one is
    made with the role, without a password. `days`: 0 is for ever, None is TAGMILL_TOKEN_DAYS;
    `name` is what it is for.

    Raises NotFound for a user who is missing where no role is named, Invalid, TooManyTokens."""
    with transaction.atomic():
        return create_own(_user(username, role), role, days, name)


def create_own(
    user: User, role: str | None = None, days: float | None = None, name: str = ""
) -> tuple[UserToken, str]:
    """As `create`, for a user who is known: at most what this user object may, which is less than
    the user where a token asks. Raises Invalid, TooManyTokens."""
    username = user.get_username()
    has = most(user)
    if has is Role.NONE:
        raise Invalid(f"{username!r} has no role, or is not active: {_HOW}", field="user")
    wanted = has if role is None else GROUPS[role]
    if wanted & has != wanted:
        detail = f"{username!r} has the role {has.label}, which is less than {wanted.label}"
        raise Invalid(f"{detail}: {_HOW}", field="role")
    return issue(user, wanted, load().token_days if days is None else days, name)


_HOW = f"give the user the role first (PATCH /api/v1/users/{{name}} or {NAME} set_role)"


def issue(user: User, role: Role, days: float, name: str = "") -> tuple[UserToken, str]:
    """A token that lasts so long, 0 is for ever. Raises TooManyTokens."""
    with transaction.atomic():
        mine = _alive_of(user)
        limit = load().tokens_per_user
        if mine.filter(is_login=False).count() >= limit:
            raise TooManyTokens(
                f"{user.get_username()!r} has {limit} tokens (TAGMILL_TOKENS_PER_USER): "
                "revoke one that is not needed any more"
            )
        return _insert(user, role, timedelta(days=days), is_login=False, name=name)


def log_in(user: User) -> tuple[UserToken, str]:
    """A token for somebody who gave the password. Beyond the limit the oldest such token ends."""
    with transaction.atomic():
        mine = _alive_of(user).filter(is_login=True).order_by("-id")
        keep = load().tokens_per_user - 1
        surplus = list(mine.values_list("id", flat=True)[keep:])
        UserToken.objects.filter(id__in=surplus).delete()
        lifetime = timedelta(hours=load().login_hours)
        return _insert(user, most(user), lifetime, is_login=True)


class _Found:
    """A row of the query `tokens`."""

    def __init__(self, *row: Any) -> None:
        *columns, groups, self.is_unrecorded = row
        own = len(TOKEN_FIELDS)
        self.made = UserToken.from_db("default", TOKEN_FIELDS, columns[:own])
        self.made.user = User.from_db("default", USER_FIELDS, columns[own:])
        limit_role(self.made.user, groups, self.made.rights)


def find(token: str) -> UserToken | None:
    """As `find_all`, of one."""
    return find_all([token]).get(token)


def find_all(given: Collection[str]) -> dict[str, UserToken]:
    """The tokens' rows, each with its user limited to the token's role; without those that are
    wrong, revoked or expired, and those of users who are not active. One query for all."""
    digests = {_digest(token): token for token in given}
    values = {
        "digests": list(digests),
        "groups": list(GROUPS),
        "recorded_every": USE_RECORDED_EVERY.total_seconds(),
    }
    found: dict[str, UserToken] = {}
    unrecorded = []
    for row in sql.bound(_Found, __file__, "tokens", values):
        same = (key for key in digests if hmac.compare_digest(key, row.made.digest))
        if (digest := next(same, None)) is None:
            continue
        found[digests[digest]] = row.made
        if row.is_unrecorded:
            unrecorded.append(row.made.id)
    if unrecorded:
        # The condition again: of many requests in this moment one writes.
        last = Q(last_used_at=None) | Q(last_used_at__lt=Now() - USE_RECORDED_EVERY)
        UserToken.objects.filter(last, id__in=unrecorded).update(last_used_at=Now())
    return found


def _user(username: str, role: str | None) -> User:
    """The user, locked, made with the role where missing. Raises NotFound."""
    user = User.objects.select_for_update().filter(username=username).first()
    if user is not None:
        return user
    if role is None:
        raise NotFound(f"there is no user {username!r}: name a role to make one")
    # Somebody else may make the same one at this moment, perhaps with another role.
    unusable = {"password": make_password(None)}
    user, is_new = User.objects.select_for_update().get_or_create(unusable, username=username)
    if is_new:
        user.groups.add(Group.objects.get(name=role))
    return user


def _alive_of(user: User) -> QuerySet[UserToken]:
    """The user's tokens, counted under the user's lock; those that have expired are deleted."""
    User.objects.select_for_update().filter(pk=user.pk).first()
    mine = UserToken.objects.filter(user=user)
    mine.filter(expires_at__lte=Now()).delete()
    return mine


def _insert(
    user: User, role: Role, lifetime: timedelta, *, is_login: bool, name: str = ""
) -> tuple[UserToken, str]:
    token = secrets.token_hex(SECRET_BYTES)
    made = UserToken.objects.create(
        digest=_digest(token),
        key=token[:KEY_CHARACTERS],
        user=user,
        role=role.label,
        name=name,
        is_login=is_login,
        expires_at=Now() + lifetime if lifetime else None,
    )
    made.refresh_from_db(fields=["created_at", "expires_at"])
    return made, token


def _digest(token: str) -> bytes:
    return hashlib.sha512(token.encode()).digest()
