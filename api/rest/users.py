"""/api/v1/users/: who there is, and with which role."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits, users
from api.openapi import Says
from api.rest import filters
from api.rest.base import Resource, Strict, one
from api.rights import role_of
from api.roles import GROUPS, IN_CLUSTERS, Role
from tagmill.errors import Invalid

ADMIN = {"GET": Role.ADMIN, "PATCH": Role.ADMIN}


MAX_CLUSTERS = 1000


class UserIn(Strict):
    role = serializers.ChoiceField(
        list(GROUPS), required=False, allow_null=True, help_text="Null takes it away."
    )
    clusters = serializers.DictField(
        child=serializers.ChoiceField(list(IN_CLUSTERS), allow_null=True),
        required=False,
        help_text="Roles in single clusters, by name or uuid, beside the one that holds "
        "everywhere. Null takes one away; clusters that are not named are left as they are.",
    )

    def validate_clusters(self, value: dict[str, Any]) -> dict[str, Any]:
        if len(value) > MAX_CLUSTERS:
            raise serializers.ValidationError(f"at most {MAX_CLUSTERS} at once")
        return value


class UserOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    role = serializers.CharField(help_text="Everywhere; `none` for somebody without one.")
    clusters = serializers.DictField(
        child=serializers.CharField(), help_text="Roles in single clusters, by the cluster's name."
    )
    is_active = serializers.BooleanField()
    token_count = serializers.IntegerField(help_text="Those that have not expired.")
    last_login = serializers.DateTimeField(allow_null=True)


def all_users() -> QuerySet[User]:
    alive = Q(api_tokens__expires_at=None) | Q(api_tokens__expires_at__gt=Now())
    counted = User.objects.annotate(token_count=Count("api_tokens", filter=alive))
    return counted.prefetch_related("groups", "cluster_roles__cluster")


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
        "clusters": {each.cluster.name: each.role for each in user.cluster_roles.all()},
        "is_active": user.is_active,
        "token_count": user.token_count,
        "last_login": user.last_login,
    }


class OneUser(Resource):
    says = {"PATCH": Says(errors=("conflict",))}
    body_limit = limits.LIST
    roles = ADMIN
    serializer_class = UserOut
    queryset = User.objects.all()

    def get(self, request: Request, username: str) -> Response:
        """Get a user"""
        return Response(_body(one(all_users(), "user", username=username)))

    @extend_schema(request=UserIn)
    def patch(self, request: Request, username: str) -> Response:
        """Give a user another role

        Up or down, everywhere or in single clusters. All the user's tokens and sessions follow at
        once. A superuser's is not changed so."""
        name = one(User.objects.all(), "user", username=username).username
        given = self.given(UserIn)
        if not given:
            raise Invalid("send `role`, `clusters`, or both", field="role")
        with transaction.atomic():
            if "role" in given:
                users.set_role(name, given["role"])
            users.set_cluster_roles(name, given.get("clusters", {}))
        return Response(_body(one(all_users(), "user", username=username)))
