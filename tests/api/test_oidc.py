"""Login by OpenID Connect, against a provider that runs: groups become roles, and nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.test import Client

from api import oidc
from api.models import OidcIdentity
from api.rights import role_of
from api.roles import Role
from tagmill import config
from tagmill.errors import ConfigurationError
from tagmill.program import ROOT

CLIENT, SECRET = "tagmill", "a secret of forty characters, more or less"
BACK = "http://testserver/login/oidc/callback"
BACKENDS = ["django.contrib.auth.backends.ModelBackend", "api.oidc.Backend"]
SECONDS = 10


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.oidc_provider", CLIENT, SECRET, BACK]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as provider:
        assert provider.stdin is not None and provider.stdout is not None
        yield provider.stdout.readline().strip()
        provider.stdin.close()


@pytest.fixture
def on(db: None, issuer: str, configure: Callable[..., None], settings: Any) -> None:
    configure(oidc_issuer=issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET)
    configure(oidc_roles="ops=operator,all=viewer,agents=uploader")
    settings.AUTHENTICATION_BACKENDS = BACKENDS


def asked(client: Client, there: str = "/tags/") -> str:
    """Where the browser is sent to log in."""
    answer = client.get("/login/oidc", {"next": there})
    assert answer.status_code == 302
    return str(answer["Location"])


def logged_in_there(address: str, hint: str) -> str:
    """Where the provider sends the browser back to, at this server."""
    answer = requests.get(
        f"{address}&{urlencode({'login_hint': hint})}", allow_redirects=False, timeout=SECONDS
    )
    assert answer.status_code == 302, answer.text
    assert answer.headers["Location"].startswith(BACK)
    return answer.headers["Location"].removeprefix("http://testserver")


def log_in(client: Client, hint: str, there: str = "/tags/") -> str:
    """Where somebody is led in the end."""
    return str(client.get(logged_in_there(asked(client, there), hint))["Location"])


def role(name: str) -> Role:
    return role_of(User.objects.get(username=name))


@pytest.mark.usefixtures("on")
def test_groups_become_roles_at_each_login() -> None:
    client = Client()
    assert log_in(client, "7:ann:ops+unknown") == "/tags/"
    assert role("ann") == Role.OPERATOR
    assert client.get("/api/v1/tags/").status_code == 200
    assert 0 < client.session.get_expiry_age() <= 12 * 3600
    # Elsewhere she is called otherwise by now, and is in other groups.
    assert log_in(Client(), "7:anne:all+agents", "https://evil.example.com/") == "/"
    assert role("ann") == Role.VIEWER | Role.UPLOADER
    assert OidcIdentity.objects.get().user.username == "ann"
    assert not User.objects.get().has_usable_password()


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize("hint", ["8:bob:", "8:bob:unknown", "8:admin:ops", "8:bad name:ops"])
def test_who_has_no_role_or_another_ones_name_is_not_let_in(hint: str) -> None:
    User.objects.create_superuser("admin")
    client = Client()
    assert log_in(client, hint) == "/login/?oidc=refused"
    assert "may have no role here" in client.get("/login/?oidc=refused").content.decode()
    assert client.get("/api/v1/tags/").status_code == 401
    assert list(User.objects.values_list("username", flat=True)) == ["admin"]


@pytest.mark.usefixtures("on")
def test_who_was_put_out_here_stays_out() -> None:
    log_in(Client(), "9:cid:ops")
    User.objects.update(is_active=False)
    assert log_in(Client(), "9:cid:ops") == "/login/?oidc=refused"


@pytest.mark.usefixtures("on")
def test_an_answer_is_good_once_and_for_who_asked() -> None:
    mine, other = Client(), Client()
    answer = logged_in_there(asked(mine), "7:ann:ops")
    # Somebody is led to an address that another has got: it would log him in as the other.
    asked(other)
    assert other.get(answer)["Location"] == "/login/?oidc=refused"
    assert Client().get(answer)["Location"] == "/login/?oidc=refused"
    assert mine.get(answer)["Location"] == "/tags/"
    assert mine.get(answer)["Location"] == "/login/?oidc=refused"
    # What is asked for has a challenge: a code that was overheard is of no use.
    query = parse_qs(urlsplit(asked(mine)).query)
    assert query["code_challenge_method"] == ["S256"] and query["nonce"] and query["state"]


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize("wrong", ["issuer", "client"])
def test_a_token_of_another_issuer_or_for_another_client_is_refused(
    wrong: str, monkeypatch: pytest.MonkeyPatch, issuer: str
) -> None:
    said = {"iss": issuer, "aud": [CLIENT], "sub": "7"}
    said |= {"iss": "https://evil.example.com"} if wrong == "issuer" else {"aud": ["another"]}
    monkeypatch.setattr(oidc.OIDCAuthenticationBackend, "verify_token", lambda *_, **__: said)
    with pytest.raises(SuspiciousOperation, match="another"):
        oidc.Backend().verify_token("token", nonce="nonce")


@pytest.mark.usefixtures("on")
def test_a_provider_that_is_away_is_told_from_a_refusal(configure: Callable[..., None]) -> None:
    configure(oidc_issuer="http://127.0.0.1:1/away")
    client = Client()
    assert asked(client) == "/login/?oidc=away"
    assert "does not answer" in client.get("/login/?oidc=away").content.decode()


def test_it_is_off_unless_a_provider_is_set(db: None) -> None:
    client = Client()
    assert client.get("/login/oidc").status_code == 404
    assert client.get("/login/oidc/callback?code=a&state=b").status_code == 404
    assert "single sign-on" not in client.get("/login/").content.decode()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"oidc_issuer": "http://id.example.com"}, "https"),
        ({"oidc_issuer": "https://id.example.com"}, "needs TAGMILL_OIDC_CLIENT_ID"),
        (
            {
                "oidc_issuer": "https://id.example.com",
                "oidc_client_id": "a",
                "oidc_client_secret": "hidden",
                "oidc_roles": "ops=root",
            },
            "'root' is not one of admin",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    configure: Callable[..., None], settings: dict[str, str], says: str
) -> None:
    configure(**settings)
    with pytest.raises(ConfigurationError, match=says) as caught:
        config.load()
    assert "hidden" not in str(caught.value)
