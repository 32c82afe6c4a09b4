"""What clients may expect of every answer: packing, keys, limits, identities."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import zstandard
from rest_framework.test import APIClient

from api.models import IdempotentRequest
from api.packing import MIN_BYTES, PIECE, coding_of, unpack
from api.problems import MalformedBody
from tagmill.audit.models import Event
from tagmill.tags.models import Rebuild, Tag
from tests.support.fleet import ANY
from tests.support.http import client_of, problem

UNPACK = {
    "gzip": gzip.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data),
}


def test_long_answers_are_packed_as_the_client_takes_it(operator: APIClient) -> None:
    for number in range(10):
        Tag.objects.create(name=f"tag{number}", comment="x" * 100)
    plain = operator.get("/api/v1/tags/")
    assert "Content-Encoding" not in plain and len(plain.content) > MIN_BYTES
    for accepted, coding in (("gzip", "gzip"), ("gzip, zstd", "zstd"), ("zstd;q=0, gzip", "gzip")):
        answer = operator.get("/api/v1/tags/", headers={"Accept-Encoding": accepted})
        assert answer["Content-Encoding"] == coding
        assert "Accept-Encoding" in answer["Vary"]
        assert int(answer["Content-Length"]) == len(answer.content) < len(plain.content)
        assert UNPACK[coding](answer.content) == plain.content
    short = operator.get("/api/v1/auth/token", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in short
    assert coding_of("br, identity") is None


def test_a_body_may_be_packed_within_its_bounds(operator: APIClient) -> None:
    def post(body: bytes) -> Any:
        return operator.post(
            "/api/v1/tags/",
            body,
            content_type="application/json",
            headers={"Content-Encoding": "gzip"},
        )

    packed = gzip.compress(json.dumps({"name": "hand"}).encode())
    assert post(packed).json()["name"] == "hand"
    problem(post(packed[:-5]), 400, "malformed_body")
    problem(post(b"{}"), 400, "malformed_body")
    problem(post(packed + packed), 400, "malformed_body")
    # 200 MB of spaces are 200 kB of gzip: they are not unpacked.
    bomb = gzip.compress(b" " * (200 << 20), 1)[: 250 << 10]
    problem(post(bomb), 413, "too_large")


def test_what_is_unpacked_comes_in_pieces() -> None:
    packed = gzip.compress(bytes(PIECE * 5))
    pieces = list(unpack([packed[:10], packed[10:]]))
    assert sum(map(len, pieces)) == PIECE * 5 and max(map(len, pieces)) <= PIECE
    with pytest.raises(MalformedBody):
        list(unpack([packed, b"more"]))


def test_a_request_that_is_sent_again_is_the_first(operator: APIClient) -> None:
    operator.post("/api/v1/tags/", {"name": "gpu", "definition": ANY}, format="json")
    Rebuild.objects.all().delete()

    def rebuild(key: str, client: APIClient = operator, **body: Any) -> Any:
        sent = body or {"all": True}
        return client.post(
            "/api/v1/rebuilds/", sent, format="json", headers={"Idempotency-Key": key}
        )

    first, second = rebuild("k1"), rebuild("k1")
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json() and second["Location"] == first["Location"]
    assert second["Idempotency-Replayed"] == "true" and "Idempotency-Replayed" not in first
    assert second["Retry-After"] == first["Retry-After"] == "1"
    problem(rebuild("k1", tags=["gpu"]), 409, "key_reused")
    assert Rebuild.objects.count() == 1
    assert rebuild("k1", client_of("admin")).json() != first.json()
    rebuild("k2")
    assert Rebuild.objects.count() == 3
    problem(rebuild("k" * 256), 400, "invalid")


def test_what_failed_may_be_sent_again(operator: APIClient) -> None:
    def rebuild() -> Any:
        body = {"tags": ["gpu"]}
        key = {"Idempotency-Key": "k"}
        return operator.post("/api/v1/rebuilds/", body, format="json", headers=key)

    problem(rebuild(), 404, "not_found")
    operator.post("/api/v1/tags/", {"name": "gpu", "definition": ANY}, format="json")
    assert rebuild().status_code == 202
    # Another process has the key, and has not answered.
    IdempotentRequest.objects.update(status=None)
    problem(rebuild(), 409, "conflict")


def test_answers_with_secrets_are_not_kept(admin: APIClient) -> None:
    for path in ("user-tokens/", "worker-tokens/", "auth/tokens/", "auth/token"):
        answer = admin.post(f"/api/v1/{path}", {}, format="json", headers={"Idempotency-Key": "k"})
        assert problem(answer, 400, "invalid")["field"] == "Idempotency-Key"


def test_the_id_of_a_request_is_the_one_that_was_sent(operator: APIClient) -> None:
    answer = operator.post(
        "/api/v1/tags/", {"name": "hand"}, format="json", headers={"X-Request-Id": "mine-1"}
    )
    assert answer["X-Request-Id"] == "mine-1"
    assert Event.objects.get(name="hand").request_id == "mine-1"
    for wrong in ("a b", "x" * 65, ""):
        made = operator.get("/api/v1/tags/", headers={"X-Request-Id": wrong})["X-Request-Id"]
        assert made != wrong and len(made) == 32


def test_what_is_counted_says_how_much_is_left(operator: APIClient) -> None:
    body = {"definition": ANY}
    answer = operator.post("/api/v1/previews/", body, format="json")
    assert answer["RateLimit-Policy"] == '"preview";q=240;w=60'
    assert answer["RateLimit"].startswith('"preview";r=239;t=')
    login = {"username": "x", "password": "y"}
    answers = [APIClient().post("/api/v1/auth/token", login, format="json") for _ in range(11)]
    assert answers[0]["RateLimit"].startswith('"login";r=9;')
    problem(answers[-1], 429, "throttled")
    assert answers[-1]["RateLimit"].startswith('"login";r=0;') and answers[-1]["Retry-After"]


def test_head_answers_as_get_without_a_body(operator: APIClient) -> None:
    found, head = operator.get("/api/v1/tags/"), operator.head("/api/v1/tags/")
    assert (head.status_code, head.content) == (200, b"")
    assert head["Content-Type"] == found["Content-Type"]
