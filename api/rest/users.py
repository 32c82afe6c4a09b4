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
from api.permissions import role_of
from api.rest.base import Resource, Strict, one
from api.roles import GROUPS, Role

ADMIN = {"GET": Role.ADMIN, "PATCH": Role.ADMIN}


class UserIn(Strict):
    role = serializers.ChoiceField(list(GROUPS), allow_null=True, help_text="Null takes it away.")


class UserOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="username")
    role = serializers.SerializerMethodField()
    is_active = serializers.BooleanField()
    token_count = serializers.IntegerField(help_text="Those that have not expired.")
    last_login = serializers.DateTimeField(allow_null=True)

    def get_role(self, user: User) -> str:
        return role_of(user).label


def all_users() -> QuerySet[User]:
    alive = Q(api_tokens__expires_at=None) | Q(api_tokens__expires_at__gt=Now())
    counted = User.objects.annotate(token_count=Count("api_tokens", filter=alive))
    return counted.prefetch_related("groups")


class Users(Resource):
    roles = ADMIN
    has_pages = True
    serializer_class = UserOut
    queryset = User.objects.all()

    @extend_schema(operation_id="users_list", responses=UserOut(many=True))
    def get(self, request: Request) -> Response:
        return self.page(all_users(), lambda rows: UserOut(rows, many=True).data)


class OneUser(Resource):
    roles = ADMIN
    serializer_class = UserOut
    queryset = User.objects.all()

    def get(self, request: Request, username: str) -> Response:
        return Response(UserOut(one(all_users(), "user", username=username)).data)

    @extend_schema(request=UserIn)
    def patch(self, request: Request, username: str) -> Response:
        """Replaces the user's role, up or down. All the user's tokens and sessions follow at once.
        409 for a superuser."""
        users.set_role(
            one(User.objects.all(), "user", username=username).username, self.given(UserIn)["role"]
        )
        return Response(UserOut(one(all_users(), "user", username=username)).data)
