"""PUT of a document, as the server answers it."""

from __future__ import annotations

import json
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Group, User

from loadtest.rig.stack import Stack
from tagmill.config import load
from tagmill.fleet import clusters
from tagmill.tags import tags
from tests.server.test_serve import call, token_of
from tests.support.fleet import GPU, put

PLACE = "/api/v1/nodes/a/document"
XML = "application/xml"
OTHER = '"0123"'
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class Client:
    """Puts and gets the document of the node `a`, which is there, as one of several roles."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._tokens = {role: token_of(role) for role in ("uploader", "operator", "viewer")}

    def put(
        self, body: bytes, query: str = "", place: str = PLACE, role: str = "uploader", **h: str
    ) -> tuple[Any, dict[str, Any]]:
        headers = {"Content_Type": XML, "Authorization": self._tokens[role], **h}
        response, data = call(self._stack, "PUT", place + query, body, **headers)
        return response, json.loads(data)

    def get(self, query: str = "", **h: str) -> tuple[Any, bytes]:
        return call(self._stack, "GET", PLACE + query, Authorization=self._tokens["operator"], **h)

    def other(self, method: str, query: str = "", role: str = "operator") -> tuple[Any, bytes]:
        return call(self._stack, method, PLACE + query, Authorization=self._tokens[role])


@pytest.fixture
def client(stack: Stack) -> Client:
    clusters.create("north")
    put("a")
    return Client(stack)


def refused(answer: tuple[Any, dict[str, Any]], status: int, code: str) -> dict[str, Any]:
    response, problem = answer
    assert (response.status, problem["code"]) == (status, code), problem
    assert response.headers["Content-Type"] == "application/problem+json"
    assert problem["status"] == status and problem["detail"]
    return problem


def test_a_document_comes_back_as_it_was_put(client: Client) -> None:
    stored, found = client.put(b'<?xml version="1.0" encoding="UTF-8"?><new/>')
    assert (stored.status, found["outcome"]) == (200, "updated")
    assert stored.headers["Content-Type"] == "application/json"
    assert len(stored.headers["X-Request-Id"]) == 32
    assert stored.headers["Tagmill-Settled"] == json.dumps(found["settled"])
    answer, data = client.get()
    assert (answer.headers["Content-Type"], data) == (XML, b"<new/>")
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    same, nothing = client.get(If_None_Match=answer.headers["ETag"])
    assert (same.status, nothing) == (304, b"")
    assert stored.headers["ETag"] == answer.headers["ETag"]
    again, unchanged = client.put(b"<new/>", Content_Type="Text/XML; charset=utf-8")
    assert unchanged == {"outcome": "unchanged", "rev": found["rev"], "settled": None}
    assert "Tagmill-Settled" not in again.headers
    assert again.headers["ETag"] == answer.headers["ETag"]


def test_what_no_request_may_say_is_refused_before_what_only_this_one_may_not(
    client: Client,
) -> None:
    too_long = f"?cluster={'x' * 257}"
    assert refused(client.put(GPU, too_long, If_Match=OTHER), 400, "invalid")["field"] == "cluster"


def test_each_probe_has_its_document(client: Client) -> None:
    lldp = "?probe=lldp"
    assert client.put(b"<lldp xmlns='lldp'/>", lldp)[0].status == 200
    assert client.get(lldp)[0].status == 200
    assert client.other("DELETE", lldp)[0].status == 204
    assert client.get(lldp)[0].status == client.other("DELETE", lldp)[0].status == 404
    assert client.get()[1] == GPU


def test_the_place_is_read_as_addresses_are(client: Client) -> None:
    assert client.put(b"<one/>", place="/api/v1/nodes/%61/document/")[0].status == 200
    assert client.put(b"<two/>", "?probe=lldp&probe=%6cshw")[0].status == 200
    assert client.get()[1] == b"<two/>"
    refused(client.put(GPU, place="/api/v1/nodes/b/document"), 404, "not_found")
    refused(client.put(GPU, place="/api/v1/nodes/a%2Fb/document"), 404, "not_found")
    refused(client.put(GPU, place="/api/v1/nodes/%ff/document"), 400, "invalid")
    assert refused(client.put(GPU, "?probe="), 400, "invalid")["field"] == "probe"


def test_malformed_xml_has_a_line_and_a_column(client: Client) -> None:
    problem = refused(client.put(b"<list>\n  <node></list>"), 400, "invalid_document")
    assert problem["line"] == 2
    assert problem["column"] > 1
    assert client.get()[1] == GPU


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd' [<!ENTITY x 'y'>]><a/>",
        b"<a>\xff</a>",
        b"<a>" * 1000 + b"</a>" * 1000,
    ],
)
def test_hostile_xml_is_refused(client: Client, body: bytes) -> None:
    response, problem = client.put(body)
    assert response.status in (400, 413), problem
    assert response.headers["Content-Type"] == "application/problem+json"
    assert client.get()[1] == GPU


def test_nothing_is_loaded_that_a_document_names(client: Client) -> None:
    assert client.put(b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>")[0].status == 200
    assert client.get()[1] == b"<a/>"


def test_a_document_over_the_limit_is_too_large(client: Client) -> None:
    limit = load().document_bytes
    answer = client.put(b"<a>" + b"x" * limit + b"</a>")
    assert refused(answer, 413, "too_large")["limit"] == limit


def test_a_probe_too_many_is_refused(client: Client) -> None:
    for number in range(15):
        assert client.put(GPU, f"?probe=a{number}")[0].status == 200
    assert refused(client.put(GPU, "?probe=a15"), 400, "invalid")["field"] == "probes"


def test_a_document_replaces_the_one_that_was_seen(client: Client) -> None:
    seen = client.get()[0].headers["ETag"]
    refused(client.put(b"<new/>", If_Match=OTHER), 412, "precondition_failed")
    assert client.get()[1] == GPU
    assert client.put(b"<new/>", If_Match=f"{OTHER}, {seen}")[0].status == 200
    refused(client.put(b"<newer/>", If_Match=seen), 412, "precondition_failed")
    assert client.get()[1] == b"<new/>"


def test_a_document_is_created_only_where_there_is_none(client: Client) -> None:
    refused(client.put(b"<new/>", If_None_Match="*"), 412, "precondition_failed")
    other = "?probe=lldp"
    refused(client.put(b"<new/>", other, If_Match="*"), 412, "precondition_failed")
    assert client.put(b"<new/>", other, If_None_Match="*")[0].status == 200
    refused(client.put(b"<new/>", other, If_None_Match="*"), 412, "precondition_failed")
    assert client.get(other)[1] == b"<new/>"


def test_what_is_not_understood_is_refused_and_strangers_learn_nothing_of_it(
    client: Client,
) -> None:
    wrong = {"Authorization": "Token wrong"}
    for code, status, query, headers in (
        ("unknown_field", 400, "?prob=lshw", {}),
        ("condition_not_supported", 412, "", {"If_Unmodified_Since": DATE}),
        ("unsupported_media_type", 415, "", {"Content_Encoding": "br"}),
        ("unsupported_media_type", 415, "", {"Content_Type": "application/json"}),
    ):
        refused(client.put(b"<new/>", query, **headers), status, code)
        refused(client.put(b"<new/>", query, **{**headers, **wrong}), 401, "unauthorized")
        refused(client.put(b"<new/>", query, role="viewer", **headers), 403, "forbidden")
    assert client.get()[1] == GPU


def test_everything_else_at_the_address_is_as_before(client: Client) -> None:
    assert client.put(b"<new/>")[0].status == 200
    response, data = client.other("POST")
    assert (response.status, json.loads(data)["code"]) == (405, "method_not_allowed")
    assert {"GET", "PUT", "DELETE"} <= {*response.headers["Allow"].split(", ")}
    assert client.other("DELETE", role="uploader")[0].status == 403


def test_an_upload_is_evaluated_before_it_is_answered(client: Client) -> None:
    tags.create("gpu", definition="//node[@class='display']")
    settled = client.put(b"<list/>")[1]["settled"]
    assert settled in (True, False)


def test_a_session_uploads_with_the_token_of_our_own_forms(stack: Stack) -> None:
    """Another site's page can have the browser send the session, and no more than that."""
    clusters.create("north")
    put("a")
    user = User.objects.create_user("ann", password="of a browser", is_staff=True)
    user.groups.add(Group.objects.get(name="uploader"))
    secret = "x" * 32
    fields = {"username": "ann", "password": "of a browser", "csrfmiddlewaretoken": secret}
    form = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": f"csrftoken={secret}"}
    entered, _ = call(stack, "POST", "/admin/login/?next=/", urlencode(fields), **form)
    cookies = SimpleCookie("; ".join(entered.headers.get_all("Set-Cookie") or ()))
    session, secret = cookies["sessionid"].value, cookies["csrftoken"].value
    cookie = f"sessionid={session}; csrftoken={secret}"

    def send(**headers: str) -> tuple[Any, dict[str, Any]]:
        given = {"Content_Type": XML, "Cookie": cookie, **headers}
        response, data = call(stack, "PUT", PLACE, b"<new/>", **given)
        return response, json.loads(data)

    refused(send(), 403, "csrf_failed")
    refused(send(X_CSRFToken="y" * 32), 403, "csrf_failed")
    forged = {"X_CSRFToken": secret, "Origin": "http://elsewhere.example"}
    refused(send(**forged), 403, "csrf_failed")
    assert send(X_CSRFToken=secret)[0].status == 200
