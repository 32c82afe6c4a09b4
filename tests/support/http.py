"""Users and clients of each role, and problem documents."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from rest_framework.test import APIClient

from api import tokens
from api.rights import role_of

ROLES = ("viewer", "uploader", "operator", "admin")


def make_user(role: str | None, name: str | None = None) -> User:
    user = User.objects.create_user(name or f"the-{role}")
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def client_of(role: str | None) -> APIClient:
    user = make_user(role)
    _, token = tokens.issue(user, role_of(user), days=1)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """Assert that the answer is this problem document, whole; return it."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    assert found["code"] == code, found
    assert found["type"] and found["title"] and found["detail"]
    return found
