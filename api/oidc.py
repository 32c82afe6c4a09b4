"""Login by OpenID Connect, where a provider is set: the code flow with PKCE, state and nonce of
mozilla-django-oidc, the endpoints from the provider's discovery, and roles from the user's groups.

Somebody is known by issuer and subject, which a provider never gives to another: a name may be, and
so nobody becomes a user that is there already. Roles are what the groups say at each login.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import jwt
import requests
import structlog
from django.contrib.auth.models import Group, User
from django.core.exceptions import SuspiciousOperation, ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import (
    OIDCAuthenticationCallbackView,
    OIDCAuthenticationRequestView,
)

from api.models import OidcIdentity
from api.roles import GROUPS
from tagmill.config import load

log = structlog.get_logger("tagmill.oidc")

TIMEOUT_SECONDS = 5.0
DISCOVERY_SECONDS = 600.0
MAX_NAME = 150
ENDPOINTS = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}
# What a provider that is out of order, or somebody else in its place, may make of it.
FAULTS = (
    requests.RequestException,
    SuspiciousOperation,
    jwt.PyJWTError,
    IntegrityError,
    ValidationError,
    ValueError,
    KeyError,
    TypeError,
)


class _Discovery:
    """What the provider says of itself, asked now and then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, str] = {}
        self._issuer, self._until = "", 0.0

    def endpoint(self, name: str) -> str:
        """Raises as FAULTS."""
        issuer = load().oidc_issuer
        with self._lock:
            if issuer != self._issuer or time.monotonic() >= self._until:
                self._found = _described(issuer)
                self._issuer, self._until = issuer, time.monotonic() + DISCOVERY_SECONDS
            return self._found[name]


_discovery = _Discovery()


def _described(issuer: str) -> dict[str, str]:
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    answer = requests.get(address, timeout=TIMEOUT_SECONDS, allow_redirects=False)
    answer.raise_for_status()
    found = answer.json()
    if found["issuer"] != issuer:
        raise ValueError(f"the provider says that it is {found['issuer']!r}")
    return {name: str(found[name]) for name in ENDPOINTS.values()}


def setting(name: str, *default: Any) -> Any:
    """What mozilla-django-oidc would read of Django's settings."""
    config = load()
    if name in ENDPOINTS:
        return _discovery.endpoint(ENDPOINTS[name])
    known = {
        "OIDC_RP_CLIENT_ID": config.oidc_client_id,
        "OIDC_RP_CLIENT_SECRET": config.oidc_client_secret,
        "OIDC_RP_SIGN_ALGO": "RS256",
        "OIDC_RP_IDP_SIGN_KEY": None,
        "OIDC_RP_SCOPES": config.oidc_scopes,
        "OIDC_USE_PKCE": True,
        "OIDC_TIMEOUT": TIMEOUT_SECONDS,
        "OIDC_AUTHENTICATION_CALLBACK_URL": "oidc-callback",
        "LOGIN_REDIRECT_URL": "/",
        "LOGIN_REDIRECT_URL_FAILURE": _back("refused"),
    }
    return known[name] if name in known else default[0]


class Backend(OIDCAuthenticationBackend):  # type: ignore[misc]
    get_settings = staticmethod(setting)

    def __init__(self) -> None:
        # Django makes one for each request of a session: the provider is asked at a login alone.
        self.UserModel = User

    def __getattr__(self, name: str) -> Any:
        if name.startswith("OIDC_"):
            return setting(name)
        raise AttributeError(name)

    def authenticate(self, request: HttpRequest | None, **kwargs: Any) -> User | None:
        # Names and passwords are tried at every backend.
        if kwargs.get("nonce") is None:
            return None
        found: User | None = super().authenticate(request, **kwargs)
        return found

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        """The library looks at signature, end and nonce."""
        payload: dict[str, Any] = super().verify_token(token, **kwargs)
        audience = payload.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience or []
        client = load().oidc_client_id
        if payload.get("iss") != load().oidc_issuer or client not in audiences:
            raise SuspiciousOperation("the token is of another provider, or for another client")
        if payload.get("azp", client) != client or not payload.get("sub"):
            raise SuspiciousOperation("the token is for another client, or of nobody")
        return payload

    def get_or_create_user(
        self, access_token: str, id_token: str, payload: dict[str, Any]
    ) -> User | None:
        found = self.get_userinfo(access_token, id_token, payload)
        if found.get("sub") != payload["sub"]:
            raise SuspiciousOperation("the provider describes somebody else")
        return user_of({**payload, **found})


def user_of(claims: dict[str, Any]) -> User:
    """The user that a provider describes, with the roles of the groups. Raises as FAULTS."""
    config = load()
    said = claims.get(config.oidc_groups_claim) or []
    groups = {said} if isinstance(said, str) else {str(group) for group in said}
    wanted = {role for group, role in config.oidc_role_of.items() if group in groups}
    if not wanted:
        raise SuspiciousOperation("none of the user's groups has a role (TAGMILL_OIDC_ROLES)")
    with transaction.atomic():
        known = OidcIdentity.objects.select_for_update().select_related("user")
        subject = str(claims["sub"])
        identity = known.filter(issuer=config.oidc_issuer, subject=subject).first()
        user = identity.user if identity else _made(subject, claims.get(config.oidc_name_claim))
        if not user.is_superuser:
            user.groups.remove(*Group.objects.filter(name__in=GROUPS.keys() - wanted))
            user.groups.add(*Group.objects.filter(name__in=wanted))
    return user


def _made(subject: str, name: Any) -> User:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise SuspiciousOperation("the provider gives no name (TAGMILL_OIDC_NAME_CLAIM)")
    User.username_validator(name)
    if User.objects.filter(username=name).exists():
        raise SuspiciousOperation(f"there is a user {name!r} already, who is not the provider's")
    user = User.objects.create_user(name)
    OidcIdentity.objects.create(issuer=load().oidc_issuer, subject=subject, user=user)
    return user


class _Begin(OIDCAuthenticationRequestView):  # type: ignore[misc]
    get_settings = staticmethod(setting)


class _Callback(OIDCAuthenticationCallbackView):  # type: ignore[misc]
    get_settings = staticmethod(setting)

    def login_success(self) -> HttpResponse:
        answer: HttpResponse = super().login_success()
        if hours := load().login_hours:
            self.request.session.set_expiry(int(3600 * hours))
        return answer


@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    return _answered(request, _Begin)


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    return _answered(request, _Callback)


def _answered(request: HttpRequest, view: Any) -> HttpResponse:
    try:
        answer: HttpResponse = view.as_view()(request)
    except FAULTS as error:
        is_away = isinstance(error, requests.RequestException)
        log.warning("a login was refused", action="oidc_refused", error=_said(error))
        return HttpResponseRedirect(_back("away" if is_away else "refused"))
    return answer


def _said(error: Exception) -> str:
    """Without what the provider answered, which may hold tokens."""
    return type(error).__name__ if isinstance(error, requests.RequestException) else str(error)


def _back(why: str) -> str:
    return f"{reverse('login')}?oidc={why}"
