"""Users' tokens: knox keeps only their hashes."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.db import transaction
from knox.models import AuthToken

from tagmill.errors import NotFound


def create(username: str, role: str | None) -> tuple[AuthToken, str]:
    """A token and its plaintext, which is never seen again. With a role, a user who is missing is
    made, without a password, and one who exists gets the role too. Raises NotFound without one."""
    with transaction.atomic():
        user = User.objects.filter(username=username).first()
        if user is None and role is None:
            raise NotFound(f"there is no user {username!r}: name a role to make one")
        if user is None:
            user = User.objects.create_user(username)
        if role is not None:
            user.groups.add(Group.objects.get(name=role))
        token: tuple[AuthToken, str] = AuthToken.objects.create(user)
        return token
