"""/api/v1/users/: who there is, and with which role."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import users
from api.openapi import Says
from api.permissions import role_of
from api.rest import filters
from api.rest.base import Resource, Strict, one
from api.roles import GROUPS, Role

ADMIN = {"GET": Role.ADMIN, "PATCH": Role.ADMIN}


class UserIn(Strict):
    role = serializers.ChoiceField(list(GROUPS), allow_null=True, help_text="Null takes it away.")


class UserOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    role = serializers.CharField(help_text="`none` for somebody without one.")
    is_active = serializers.BooleanField()
    token_count = serializers.IntegerField(help_text="Those that have not expired.")
    last_login = serializers.DateTimeField(allow_null=True)


def all_users() -> QuerySet[User]:
    alive = Q(api_tokens__expires_at=None) | Q(api_tokens__expires_at__gt=Now())
    counted = User.objects.annotate(token_count=Count("api_tokens", filter=alive))
    return counted.prefetch_related("groups")


def _has_role(role: str) -> Q:
    of_group = Q(id__in=User.objects.filter(groups__name=role).values("id"))
    return of_group | Q(is_superuser=True) if GROUPS[role] == Role.ADMIN else of_group


FILTERS = (
    filters.text("prefix", "username__istartswith", "What the name begins with, in any case."),
    filters.choice("role", list(GROUPS), _has_role, "Who was given it; a superuser is an admin."),
    filters.flag("is_active", "is_active", "Whether the user may do anything at all."),
)


class Users(Resource):
    roles = ADMIN
    has_pages = True
    filters = FILTERS
    orders = {"id": "id", "-id": "-id", "name": "username", "-name": "-username"}
    serializer_class = UserOut
    queryset = User.objects.all()

    @extend_schema(operation_id="users_list", responses=UserOut(many=True))
    def get(self, request: Request) -> Response:
        """List the users"""
        return self.page(all_users(), lambda rows: [_body(row) for row in rows])


def _body(user: Any) -> dict[str, Any]:
    return {
        "name": user.username,
        "role": role_of(user).label,
        "is_active": user.is_active,
        "token_count": user.token_count,
        "last_login": user.last_login,
    }


class OneUser(Resource):
    says = {"PATCH": Says(errors=("conflict",))}
    roles = ADMIN
    serializer_class = UserOut
    queryset = User.objects.all()

    def get(self, request: Request, username: str) -> Response:
        """Get a user"""
        return Response(_body(one(all_users(), "user", username=username)))

    @extend_schema(request=UserIn)
    def patch(self, request: Request, username: str) -> Response:
        """Give a user another role

        Up or down. All the user's tokens and sessions follow at once. A superuser's is not changed
        so."""
        users.set_role(
            one(User.objects.all(), "user", username=username).username, self.given(UserIn)["role"]
        )
        return Response(_body(one(all_users(), "user", username=username)))
