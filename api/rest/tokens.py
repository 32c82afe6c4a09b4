"""/api/v1/auth/, /api/v1/user-tokens/ and /api/v1/worker-tokens/"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.db.models import QuerySet
from django.db.models.functions import Now
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits, tokens
from api.login import LoginThrottle
from api.models import UserToken
from api.permissions import role_of
from api.problems import Forbidden, Unauthorized
from api.rest.base import Name, Resource, Strict, one
from api.rest.clusters import cluster_named
from api.roles import GROUPS, Role
from tagmill.errors import Invalid
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
    role = serializers.CharField(help_text="What the token and its user may do both.")


class Token(Resource):
    """POST a name and a password for a token; GET says whose it is; DELETE revokes it."""

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
        return Response({"user": request.user.get_username(), "role": role_of(request.user).label})

    @extend_schema(request=Credentials, responses={201: Issued}, auth=[])
    def post(self, request: Request) -> Response:
        user = authenticate(**self.given(Credentials))
        if user is None:
            raise Unauthorized("the name or the password is wrong", "Token")
        return _issued(*tokens.log_in(user))

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
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


class UserTokens(Resource):
    roles = ADMIN
    has_pages = True
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(operation_id="user_tokens_list", responses=UserTokenOut(many=True))
    def get(self, request: Request) -> Response:
        found = UserToken.objects.select_related("user")
        return self.page(found, lambda rows: UserTokenOut(rows, many=True).data)

    @extend_schema(request=UserTokenIn, responses={201: Issued})
    def post(self, request: Request) -> Response:
        given = self.given(UserTokenIn)
        wanted = (given.get("role"), given.get("days"), given.get("name", ""))
        return _issued(*tokens.create(given["user"], *wanted))


class OwnTokens(Resource):
    """The tokens of whoever asks."""

    roles = EVERYBODY
    has_pages = True
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(operation_id="own_tokens_list", responses=UserTokenOut(many=True))
    def get(self, request: Request) -> Response:
        found = UserToken.objects.filter(user=request.user.pk).select_related("user")
        return self.page(found, lambda rows: UserTokenOut(rows, many=True).data)

    @extend_schema(operation_id="own_tokens_create", request=OwnTokenIn, responses={201: Issued})
    def post(self, request: Request) -> Response:
        """A token for oneself. It takes a password: a browser's session, or a token got by one. A
        token that was given to a program cannot make another that outlives it."""
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
        mine = UserToken.objects.filter(user=request.user.pk)
        one(mine, "token of yours", key=key).delete()
        return Response(status=204)


class OneUserToken(Resource):
    roles = ADMIN
    serializer_class = UserTokenOut
    queryset = UserToken.objects.all()

    @extend_schema(responses={204: None})
    def delete(self, request: Request, key: str) -> Response:
        one(UserToken.objects.all(), "user token", key=key).delete()
        return Response(status=204)


class WorkerTokenIn(Strict):
    name = Name()
    clusters = serializers.ListField(
        child=serializers.CharField(max_length=256),
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
    clusters = serializers.ListField(child=serializers.CharField(), source="clusters.all")
    all_clusters = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)


class IssuedWorkerToken(WorkerTokenOut):
    token = serializers.CharField(help_text="Shown this once.", source="plaintext")


def worker_tokens() -> QuerySet[WorkerToken]:
    return WorkerToken.objects.prefetch_related("clusters")


class WorkerTokens(Resource):
    roles = ADMIN
    body_limit = limits.LIST
    has_pages = True
    serializer_class = WorkerTokenOut
    queryset = WorkerToken.objects.all()

    @extend_schema(operation_id="worker_tokens_list", responses=WorkerTokenOut(many=True))
    def get(self, request: Request) -> Response:
        return self.page(worker_tokens(), lambda rows: WorkerTokenOut(rows, many=True).data)

    @extend_schema(request=WorkerTokenIn, responses={201: IssuedWorkerToken})
    def post(self, request: Request) -> Response:
        given = self.given(WorkerTokenIn)
        chosen = [cluster_named(key) for key in given.get("clusters", [])]
        made, token = workers.issue_token(given["name"], "all" if given["all_clusters"] else chosen)
        issued: Any = worker_tokens().get(pk=made.pk)
        issued.plaintext = token
        answer = IssuedWorkerToken(issued).data
        return Response(answer, 201, headers={"Cache-Control": "no-store"})


class OneWorkerToken(Resource):
    roles = ADMIN
    serializer_class = WorkerTokenOut
    queryset = WorkerToken.objects.all()

    def get(self, request: Request, lookup: str) -> Response:
        return Response(WorkerTokenOut(one(worker_tokens(), "worker token", lookup=lookup)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, lookup: str) -> Response:
        """Revokes it: workers that use it stop at their next request."""
        found = one(worker_tokens(), "worker token", lookup=lookup)
        WorkerToken.objects.filter(pk=found.pk, revoked_at=None).update(revoked_at=Now())
        return Response(status=204)


def _issued(made: UserToken, token: str) -> Response:
    answer = Issued({"token": token, "made": made}).data
    return Response(answer, 201, headers={"Cache-Control": "no-store"})
