"""Shared images over HTTP: for workers of the cluster, whole or in part, checked and bounded."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import pytest

from loadtest.rig.stack import Stack
from tagmill.config import MIB
from tagmill.fleet import clusters, incarnation
from tagmill.fleet.models import SharedImage
from tagmill.work import workers
from tests.server.test_serve import call, token_of
from tests.support.fleet import north, the_partition

BODY = os.urandom(3 * MIB)
SCHEMA = "1_kernel_test"


def digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=32).hexdigest()


class Images:
    """The images of the only partition, for a worker with a token for some clusters."""

    def __init__(self, stack: Stack, clusters: Any = "all") -> None:
        self.stack = stack
        _, token = workers.issue_token("images", clusters)
        self.authorization = f"Worker {token}"
        self.path = f"/api/v1/partitions/{the_partition().id}/images/"
        self.newest = f"newest?incarnation={incarnation.current()}&schema={SCHEMA}"

    def name(self, body: bytes) -> str:
        return f"{incarnation.current()}-{the_partition().rev}-{SCHEMA}-{digest(body)}"

    def ask(self, method: str, name: str, body: Any = None, **headers: str) -> tuple[Any, bytes]:
        if body is not None:
            headers.setdefault("Content_Type", "application/octet-stream")
        headers.setdefault("Authorization", self.authorization)
        return call(self.stack, method, self.path + name, body, **headers)

    def put(self, body: bytes) -> tuple[Any, Any]:
        response, data = self.ask("PUT", self.name(body), body)
        return response, json.loads(data)


@pytest.fixture
def images(stack: Stack) -> Images:
    north("a")
    return Images(stack)


def test_an_image_comes_back_whole_or_in_part(images: Images) -> None:
    assert images.ask("GET", images.newest)[0].status == 404
    response, answer = images.put(BODY)
    assert (response.status, answer) == (200, {"outcome": "stored"})
    assert images.put(BODY)[1] == {"outcome": "superseded"}
    etag = f'"{digest(BODY)}"'
    for name in (images.newest, images.name(BODY)):
        head, data = images.ask("GET", name)
        assert (head.status, data) == (200, BODY)
        assert (head.getheader("ETag"), head.getheader("Accept-Ranges")) == (etag, "bytes")
        assert head.getheader("Tagmill-Image") == images.name(BODY)
        head, data = images.ask("HEAD", name)
        assert (head.status, data, head.getheader("ETag")) == (200, b"", etag)
        assert images.ask("GET", name, If_None_Match=etag)[0].status == 304
    for asked, part in {
        "bytes=0-9": BODY[:10],
        f"bytes={2 * MIB}-": BODY[2 * MIB :],
        "bytes=-7": BODY[-7:],
        f"bytes={3 * MIB - 100}-{9 * MIB}": BODY[-100:],
    }.items():
        head, data = images.ask("GET", images.newest, Range=asked, If_Range=etag)
        assert (head.status, data) == (206, part)
        begin = BODY.index(part)
        assert head.getheader("Content-Range") == f"bytes {begin}-{begin + len(part) - 1}/{3 * MIB}"
    # An image that has changed is sent whole, and so is what is no range of bytes.
    for headers in ({"Range": "bytes=0-9", "If_Range": '"other"'}, {"Range": "bytes=1-2,4-5"}):
        assert images.ask("GET", images.newest, **headers)[1] == BODY
    head, data = images.ask("GET", images.newest, Range=f"bytes={3 * MIB}-")
    assert (head.status, json.loads(data)["code"]) == (416, "range_not_satisfiable")
    assert head.getheader("Content-Range") == f"bytes */{3 * MIB}"


def test_an_image_is_for_the_clusters_of_the_workers_token(images: Images) -> None:
    """Neither to be read nor to be written by others; nor by users, nor by strangers."""
    images.put(BODY[:100])
    south = Images.__new__(Images)
    south.__dict__.update(images.__dict__)
    _, token = workers.issue_token("south", [clusters.create("south")])
    for authorization, status in {
        f"Worker {token}": 404,
        token_of("admin"): 401,
        "Worker wrong": 401,
        "": 401,
    }.items():
        south.authorization = authorization
        assert south.ask("GET", south.newest)[0].status == status
        assert south.ask("PUT", south.name(b"mine"), b"mine")[0].status == status
    assert SharedImage.objects.get().digest == digest(BODY[:100])


def test_what_is_wrong_is_refused(images: Images) -> None:
    name = images.name(b"one")
    cases: list[tuple[int, str, tuple[str, str, Any, dict[str, str]]]] = [
        (400, "invalid", ("PUT", name, b"two", {})),
        (400, "invalid", ("PUT", "no-name", b"one", {})),
        (415, "unsupported_media_type", ("PUT", name, b"one", {"Content_Type": "text/plain"})),
        (405, "method_not_allowed", ("DELETE", name, None, {})),
        (400, "unknown_field", ("GET", f"{name}?since=1", None, {})),
        (400, "invalid", ("GET", "newest", None, {})),
        (400, "invalid", ("GET", f"{images.newest}-", None, {})),
        (410, "incarnation_changed", ("GET", f"newest?incarnation=x&schema={SCHEMA}", None, {})),
        (404, "image_missing", ("GET", name, None, {})),
        (413, "too_large", ("PUT", name, bytes(64 * MIB + 1), {})),
    ]
    for status, code, (method, asked, body, headers) in cases:
        response, data = images.ask(method, asked, body, **headers)
        assert (response.status, json.loads(data)["code"]) == (status, code), asked
    assert not SharedImage.objects.exists()
