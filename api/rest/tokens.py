"""/api/v1/auth/, /api/v1/user-tokens/ and /api/v1/worker-tokens/"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits, tokens
from api.login import LoginThrottle
from api.models import UserToken
from api.openapi import Says
from api.problems import Forbidden, Unauthorized
from api.rest import filters
from api.rest.base import Name, Resource, Strict, one
from api.rest.clusters import cluster_named
from api.rights import in_clusters, role_of
from api.roles import GROUPS, Role
from tagmill.errors import Invalid
from tagmill.fleet import clusters
from tagmill.work import workers
from tagmill.work.models import WorkerToken

ADMIN = {"GET": Role.ADMIN, "POST": Role.ADMIN, "DELETE": Role.ADMIN}
EVERYBODY = {"GET": Role.NONE, "POST": Role.NONE, "DELETE": Role.NONE}
MAX_CLUSTERS = 1000


class Credentials(Strict):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)


class Issued(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Shown this once.")
    user = serializers.CharField(source="made.user.username")
    role = serializers.CharField(source="made.role", help_text="The token's.")
    expires_at = serializers.DateTimeField(source="made.expires_at", allow_null=True)


class WhoAmI(serializers.Serializer[Any]):
    user = serializers.CharField()
    role = serializers.CharField(help_text="What the token and its user may do both, everywhere.")
    clusters = serializers.DictField(
        child=serializers.CharField(),
        help_text="The same in single clusters, where it is more, by the cluster's name.",
    )


class Token(Resource):
    keeps_answers = False
    says = {
        "POST": Says(errors=("unauthorized",), headers=("RateLimit", "RateLimit-Policy")),
        "DELETE": Says(errors=("invalid",)),
    }
    serializer_class = WhoAmI
    roles = {"GET": Role.NONE, "DELETE": Role.NONE}

    def get_permissions(self) -> Any:
        return [AllowAny()] if self.request.method == "POST" else super().get_permissions()

    def get_authenticators(self) -> Any:
        # A browser's session must not ask for a CSRF token from someone who logs in.
        is_login = self.request is not None and self.request.method == "POST"
        return [] if is_login else super().get_authenticators()

    def get_throttles(self) -> Any:
        return [LoginThrottle()] if self.request.method == "POST" else []

    @extend_schema(operation_id="auth_whoami")
    def get(self, request: Request) -> Response:
        """Say who asks, and with which role"""
        user = request.user
        role = role_of(user)
        more = {each.name: each.role for each in in_clusters(user) if each.role not in role}
        clusters = {name: (found | role).label for name, found in more.items()}
        return Response({"user": user.get_username(), "role": role.label, "clusters": clusters})

    @extend_schema(request=Credentials, responses={201: Issued}, auth=[])
    def post(self, request: Request) -> Response:
        """Log in

        A token for a name and a password."""
        user = authenticate(**self.given(Credentials))
        if user is None:
            raise Unauthorized("the name or the password is wrong", "Token")
        return _issued(*tokens.log_in(user))

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        """Revoke the token that asks"""
        if not isinstance(request.auth, UserToken):
            raise Invalid("send the token to revoke as Authorization: Token <token>")
        request.auth.delete()
        return Response(status=204)


class OwnTokenIn(Strict):
    name = serializers.CharField(
        max_length=64, required=False, allow_blank=True, help_text="What it is for."
    )
    role = serializers.ChoiceField(
        list(GROUPS),
        required=False,
        help_text="What the token may do: at most what the user may, which is the default.",
    )
    days = serializers.FloatField(
        required=False,
        min_value=0,
        max_value=tokens.MAX_DAYS,
        help_text="How long it lasts. 0: for ever. Default: TAGMILL_TOKEN_DAYS.",
    )


class UserTokenIn(OwnTokenIn):
    user = serializers.CharField(
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        help_text="A user who is missing is made, with the role.",
    )


class UserTokenOut(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="The token's first characters.")
    name = serializers.CharField(help_text="What it is for; may be empty.")
    user = serializers.CharField(source="user.username")
    role = serializers.CharField(help_text="What it was issued with; the user's may be less now.")
    is_login = serializers.BooleanField(help_text="Made by a name and a password.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")


def _has_expired(wanted: bool) -> Q:
    ended = Q(expires_at__lte=Now())
    return ended if wanted else Q(expires_at=None) | ~ended


FIELDS = ("key", "name", "role", "is_login", "created_at", "expires_at", "last_used_at")
CREATED = {"created_at": "id", "-created_at": "-id"}
OF_USERS = (
    filters.text("user", "user__username", "Whose it is."),
    filters.flag("is_login", "is_login", "Whether a name and a password made it."),
    filters.flag("expired", _has_expired, "Whether its time is over."),
)


class UserTokens(Resource):
    keeps_answers = False
    says = {"POST": Says(errors=("too_many_tokens",))}
    roles = ADMIN
    has_pages = True
    filters = OF_USERS
    orders = CREATED
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(operation_id="user_tokens_list", responses=UserTokenOut(many=True))
    def get(self, request: Request) -> Response:
        """List the tokens of users"""
        return self.page(UserToken.objects.values("id", "user__username", *FIELDS), _bodies)

    @extend_schema(request=UserTokenIn, responses={201: Issued})
    def post(self, request: Request) -> Response:
        """Issue a token of a user

        A user who is missing is made, with the role that is asked for and without a password."""
        given = self.given(UserTokenIn)
        wanted = (given.get("role"), given.get("days"), given.get("name", ""))
        return _issued(*tokens.create(given["user"], *wanted))


def _bodies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"user": row["user__username"], **{name: row[name] for name in FIELDS}} for row in rows]


class OwnTokens(Resource):
    keeps_answers = False
    says = {"POST": Says(errors=("too_many_tokens",))}
    roles = EVERYBODY
    has_pages = True
    filters = OF_USERS[1:]
    orders = CREATED
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(operation_id="own_tokens_list", responses=UserTokenOut(many=True))
    def get(self, request: Request) -> Response:
        """List your own tokens"""
        mine = UserToken.objects.filter(user=request.user.pk)
        return self.page(mine.values("id", "user__username", *FIELDS), _bodies)

    @extend_schema(operation_id="own_tokens_create", request=OwnTokenIn, responses={201: Issued})
    def post(self, request: Request) -> Response:
        """Issue a token to yourself

        It takes a browser's session, or a token got by a password: a token that was given to a
        program cannot make another that outlives it."""
        if isinstance(request.auth, UserToken) and not request.auth.is_login:
            raise Forbidden(
                "this token cannot make tokens: log in with your password (POST auth/token)"
            )
        given = self.given(OwnTokenIn)
        wanted = (given.get("role"), given.get("days"), given.get("name", ""))
        return _issued(*tokens.create_own(cast(User, request.user), *wanted))


class OneOwnToken(Resource):
    roles = EVERYBODY
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(operation_id="own_tokens_destroy", responses={204: None})
    def delete(self, request: Request, key: str) -> Response:
        """Revoke a token of yours"""
        mine = UserToken.objects.filter(user=request.user.pk)
        one(mine, "token of yours", key=key).delete()
        return Response(status=204)


class OneUserToken(Resource):
    roles = ADMIN
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(responses={204: None})
    def delete(self, request: Request, key: str) -> Response:
        """Revoke a token of a user"""
        one(UserToken.objects.all(), "user token", key=key).delete()
        return Response(status=204)


class WorkerTokenIn(Strict):
    alternatives = {
        "TokenForClusters": {"name": {}, "clusters": {"minItems": 1}},
        "TokenForAllClusters": {"name": {}, "all_clusters": {"const": True}},
    }
    name = Name()
    clusters = serializers.ListField(
        child=serializers.CharField(max_length=256, trim_whitespace=False),
        required=False,
        max_length=MAX_CLUSTERS,
        help_text="Names or uuids.",
    )
    all_clusters = serializers.BooleanField(default=False, help_text="Also those made later.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if bool(attrs.get("clusters")) == attrs["all_clusters"]:
            raise serializers.ValidationError('send either "clusters" or "all_clusters": true')
        return attrs


class WorkerTokenOut(serializers.Serializer[Any]):
    lookup = serializers.CharField(help_text="The token's part between the underscores.")
    name = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    all_clusters = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)


class IssuedWorkerToken(WorkerTokenOut):
    token = serializers.CharField(help_text="Shown this once.")


def worker_tokens() -> QuerySet[WorkerToken]:
    return WorkerToken.objects.prefetch_related("clusters")


def _names_cluster(key: str) -> Q:
    named = WorkerToken.clusters.through.objects.filter(cluster=cluster_named(key).id)
    return Q(all_clusters=True) | Q(id__in=named.values("workertoken"))


OF_WORKERS = (
    filters.text("prefix", "name__istartswith", "What the name begins with, in any case."),
    filters.text("cluster", _names_cluster, "A cluster that it opens, by name or uuid."),
    filters.flag(
        "revoked", lambda wanted: Q(revoked_at__isnull=not wanted), "Whether it was revoked."
    ),
)


READ = Says(
    errors=("not_found",),
    links={
        "read": ("worker_tokens_retrieve", {"lookup": "$response.body#/lookup"}),
        "revoke": ("worker_tokens_destroy", {"lookup": "$response.body#/lookup"}),
    },
)


class WorkerTokens(Resource):
    keeps_answers = False
    says = {"POST": READ}
    roles = ADMIN
    body_limit = limits.LIST
    has_pages = True
    filters = OF_WORKERS
    orders = CREATED
    serializer_class = WorkerTokenOut
    queryset = WorkerToken.objects.all()

    @extend_schema(operation_id="worker_tokens_list", responses=WorkerTokenOut(many=True))
    def get(self, request: Request) -> Response:
        """List the tokens of workers"""
        return self.page(worker_tokens(), lambda rows: [_body(row) for row in rows])

    @extend_schema(request=WorkerTokenIn, responses={201: IssuedWorkerToken})
    def post(self, request: Request) -> Response:
        """Issue a token of a worker

        For some clusters, or for all."""
        given = self.given(WorkerTokenIn)
        chosen = clusters.all_named(given.get("clusters", []))
        made, token = workers.issue_token(given["name"], "all" if given["all_clusters"] else chosen)
        answer = {**_body(worker_tokens().get(pk=made.pk)), "token": token}
        return Response(answer, 201, headers={"Cache-Control": "no-store"})


def _body(token: WorkerToken) -> dict[str, Any]:
    return {
        "lookup": token.lookup,
        "name": token.name,
        "clusters": [cluster.name for cluster in token.clusters.all()],
        "all_clusters": token.all_clusters,
        "created_at": token.created_at,
        "revoked_at": token.revoked_at,
    }


class OneWorkerToken(Resource):
    roles = ADMIN
    serializer_class = WorkerTokenOut
    queryset = WorkerToken.objects.all()

    def get(self, request: Request, lookup: str) -> Response:
        """Get a token of a worker"""
        return Response(_body(one(worker_tokens(), "worker token", lookup=lookup)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, lookup: str) -> Response:
        """Revoke a token of a worker

        Workers that use it stop at their next request."""
        found = one(worker_tokens(), "worker token", lookup=lookup)
        WorkerToken.objects.filter(pk=found.pk, revoked_at=None).update(revoked_at=Now())
        return Response(status=204)


def _issued(made: UserToken, token: str) -> Response:
    answer = Issued({"token": token, "made": made}).data
    return Response(answer, 201, headers={"Cache-Control": "no-store"})
