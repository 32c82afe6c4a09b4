"""/api/v1/auth/token, /api/v1/user-tokens/ and /api/v1/worker-tokens/"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.db.models import QuerySet
from django.db.models.functions import Now
from drf_spectacular.utils import extend_schema
from knox.models import AuthToken
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits, tokens
from api.login import LoginThrottle
from api.permissions import GROUPS, Role, role_of
from api.problems import InvalidToken
from api.resources.base import Name, Resource, Strict, one
from api.resources.clusters import cluster_named
from tagmill.errors import Invalid
from tagmill.rebuilds import workers
from tagmill.rebuilds.models import WorkerToken

ADMIN = {"GET": Role.ADMIN, "POST": Role.ADMIN, "DELETE": Role.ADMIN}
MOST_CLUSTERS = 1000


class Credentials(Strict):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)


class Issued(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Shown this once.")
    user = serializers.CharField()
    role = serializers.CharField()


class WhoAmI(serializers.Serializer[Any]):
    user = serializers.CharField()
    role = serializers.CharField()


class Token(Resource):
    """POST a name and a password for a token; GET says whose it is; DELETE revokes it."""

    serializer_class = WhoAmI
    roles = {"DELETE": Role.NONE}

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
        return Response({"user": request.user.get_username(), "role": _role(request.user)})

    @extend_schema(request=Credentials, responses={201: Issued}, auth=[])
    def post(self, request: Request) -> Response:
        user = authenticate(**self.given(Credentials))
        if user is None:
            raise InvalidToken("the name or the password is wrong")
        _, token = AuthToken.objects.create(user)
        answer = {"token": token, "user": user.get_username(), "role": _role(user)}
        return Response(answer, 201, headers={"Cache-Control": "no-store"})

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        if not isinstance(request.auth, AuthToken):
            raise Invalid("send the token to revoke as Authorization: Token <token>")
        request.auth.delete()
        return Response(status=204)


class UserTokenIn(Strict):
    user = serializers.CharField(max_length=150, validators=[UnicodeUsernameValidator()])
    role = serializers.ChoiceField(
        list(GROUPS), required=False, help_text="Makes the user when there is none."
    )


class UserTokenOut(serializers.Serializer[Any]):
    key = serializers.CharField(source="token_key", help_text="The token's first characters.")
    user = serializers.CharField(source="user.username")
    created = serializers.DateTimeField()
    expiry = serializers.DateTimeField(allow_null=True)


class UserTokens(Resource):
    roles = ADMIN
    has_pages = True
    keyset = "digest"
    serializer_class = UserTokenOut
    queryset = AuthToken.objects.all()

    @extend_schema(operation_id="user_tokens_list", responses=UserTokenOut(many=True))
    def get(self, request: Request) -> Response:
        found = AuthToken.objects.select_related("user")
        return self.page(found, lambda rows: UserTokenOut(rows, many=True).data)

    @extend_schema(request=UserTokenIn, responses={201: Issued})
    def post(self, request: Request) -> Response:
        given = self.given(UserTokenIn)
        made, token = tokens.create(given["user"], given.get("role"))
        answer = {"token": token, "user": given["user"], "role": _role(made.user)}
        return Response(answer, 201, headers={"Cache-Control": "no-store"})


class OneUserToken(Resource):
    roles = ADMIN
    serializer_class = UserTokenOut
    queryset = AuthToken.objects.all()

    @extend_schema(responses={204: None})
    def delete(self, request: Request, key: str) -> Response:
        one(AuthToken.objects.all(), "user token", token_key=key).delete()
        return Response(status=204)


class WorkerTokenIn(Strict):
    name = Name()
    clusters = serializers.ListField(
        child=serializers.CharField(max_length=256),
        required=False,
        max_length=MOST_CLUSTERS,
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


def _role(user: Any) -> str:
    return role_of(user).name.lower()
