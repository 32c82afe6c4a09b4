"""What TAGMILL_TRUSTED_PROXIES makes of the headers of a proxy in front."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from loadtest.rig.stack import Stack
from tagmill.fleet import clusters
from tests.server.test_serve import call, token_of
from tests.support.servers import server

GUESS = json.dumps({"username": "ann", "password": "?"})
JSON: Any = {"Content_Type": "application/json"}
TLS: Any = {"X_Forwarded_Proto": "https"}


@pytest.fixture(scope="module")
def shared_proxied(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    yield from server(tmp_path_factory.mktemp("server"), TAGMILL_TRUSTED_PROXIES="1")


@pytest.fixture
def proxied(transactional_db: None, shared_proxied: Stack) -> Stack:
    """A server behind one proxy. The guesses of a test are forgotten at its end."""
    return shared_proxied


def guess(stack: Stack, claimed: str) -> int:
    headers = {**JSON, "X_Forwarded_For": claimed}
    return call(stack, "POST", "/api/v1/auth/token", GUESS, **headers)[0].status


def links(stack: Stack) -> list[str]:
    """The links of a page, and of a preview by Django and natively."""
    for name in ("north", "south"):
        clusters.create(name)
    token = token_of("operator")
    page = call(stack, "GET", "/api/v1/clusters/?limit=1", Authorization=token, **TLS)[1]
    found = [json.loads(page)["next"]]
    for prefer in ("", "wait=1"):
        body = json.dumps({"definition": "//node"})
        headers = {"Authorization": token, "Prefer": prefer, **JSON, **TLS}
        answer = call(stack, "POST", "/api/v1/previews", body, **headers)[0]
        found.append(answer.headers["Location"])
    return found


def test_links_are_https_behind_a_proxy_with_tls(proxied: Stack) -> None:
    assert {link.partition(":")[0] for link in links(proxied)} == {"https"}
    page = call(proxied, "GET", "/admin/login/", **TLS)[0]
    assert "; Secure" in page.headers["Set-Cookie"]


def test_no_client_is_believed_without_a_proxy(stack: Stack) -> None:
    assert {link.partition(":")[0] for link in links(stack)} == {"http"}
    assert "; Secure" not in call(stack, "GET", "/admin/login/")[0].headers["Set-Cookie"]


def test_behind_a_proxy_guesses_count_by_the_address_that_it_adds(proxied: Stack) -> None:
    """The proxy adds to what the client claimed."""
    for number in range(10):
        assert guess(proxied, f"10.0.0.{number}, 192.0.2.1") == 401
    assert guess(proxied, "10.0.0.99, 192.0.2.1") == 429
    assert guess(proxied, "192.0.2.2") == 401


def test_a_header_with_underscores_is_not_taken_for_the_proxys(proxied: Stack) -> None:
    """WSGI would write both alike, and believe the client's."""

    def guessed(number: int) -> int:
        host, _, port = proxied.listen.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.putrequest("POST", "/api/v1/auth/token")
        for name, value in (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(GUESS))),
            ("X-Forwarded-For", "192.0.2.1"),
            ("X_Forwarded_For", f"10.0.0.{number}"),
        ):
            connection.putheader(name, value)
        connection.endheaders(GUESS.encode())
        status = connection.getresponse().status
        connection.close()
        return status

    assert [guessed(number) for number in range(11)] == [401] * 10 + [429]
