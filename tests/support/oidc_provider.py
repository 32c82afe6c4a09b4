"""A provider of OpenID Connect for tests: django-oauth-toolkit on a database in memory.

    python -m tests.support.oidc_provider CLIENT_ID CLIENT_SECRET REDIRECT_URI

prints its issuer, and serves until standard input ends. Who logs in, and in which groups, says the
parameter `login_hint` of the authorization, as `subject:name:group+group`.
"""

from __future__ import annotations

import sys
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
from django.conf import settings
from django.core.management import call_command
from jwcrypto import jwk


class LoggedIn:
    """Middleware: whoever comes is who the hint says."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        if hint := request.GET.get("login_hint"):
            from django.contrib.auth.models import Group, User

            subject, name, groups = hint.split(":")
            request.user, _ = User.objects.update_or_create(
                pk=int(subject), defaults={"username": f"{name}/{subject}"}
            )
            made = [Group.objects.get_or_create(name=each)[0] for each in groups.split("+") if each]
            request.user.groups.set(made)
        return self._get_response(request)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


def configure() -> None:
    key = jwk.JWK.generate(kty="RSA", size=2048).export_to_pem(private_key=True, password=None)
    settings.configure(
        SECRET_KEY="of a provider that is there for tests",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            f"{__name__}.LoggedIn",
        ],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        # The secret of a client is hashed as a password is, which would take most of a login.
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": key.decode(),
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "who", "profile": "name and groups"},
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.Validator",
        },
    )
    django.setup()


def main(client: str, secret: str, redirect: str) -> None:
    call_command("migrate", verbosity=0)
    from oauth2_provider.models import Application

    Application.objects.create(
        client_id=client,
        client_secret=secret,
        redirect_uris=redirect,
        client_type="confidential",
        authorization_grant_type="authorization-code",
        algorithm="RS256",
        skip_authorization=True,
    )
    from django.core.wsgi import get_wsgi_application

    server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/o", flush=True)
    server.serve_forever(0.05)


configure()

from django.urls import include, path  # noqa: E402
from oauth2_provider.oauth2_validators import OAuth2Validator  # noqa: E402

urlpatterns = [path("o/", include("oauth2_provider.urls", namespace="oauth2_provider"))]


class Validator(OAuth2Validator):  # type: ignore[misc]
    oidc_claim_scope = None

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        return {
            "preferred_username": request.user.username.partition("/")[0],
            "groups": [group.name for group in request.user.groups.all()],
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
