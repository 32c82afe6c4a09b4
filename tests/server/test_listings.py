"""Lists out of the body cache are what Django would have answered at that moment."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

from api.cache import controls
from api.cache.controls import Scope
from loadtest.rig.stack import Stack
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.flows import ingest
from tagmill.tags import assignments, rebuilds, tags
from tagmill_wire import zstd
from tests.server.test_serve import call, token_of
from tests.support.fleet import BARE, put
from tests.support.http import client_of
from tests.support.threads import at_once, until
from tests.support.workers import a_worker, gpu_published, work

TAG_NODES = "/api/v1/tags/gpu/nodes"


class Reader:
    """A viewer, over the network and past it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.header = token_of("viewer")
        self.django = client_of("admin")
        host = stack.listen
        self.django.defaults["HTTP_HOST"] = host

    def get(self, path: str, **headers: str) -> tuple[Any, bytes]:
        return call(self.stack, "GET", path, Authorization=self.header, **headers)

    def same(self, path: str, **headers: str) -> Any:
        """Assert that the server answers what Django does; the answer."""
        response, data = self.get(path, **headers)
        expected = self.django.get(path)
        assert (response.status, json.loads(data)) == (expected.status_code, expected.json())
        for name in ("Link", "Content-Type", "Allow", "X-Frame-Options", "X-Content-Type-Options"):
            assert response.headers.get(name) == expected.headers.get(name), name
        return response

    def counts(self, keyspace: str = "tag_nodes") -> dict[str, int]:
        _, data = call(self.stack, "GET", "/metrics")
        found = re.findall(
            rf'^tagmill_body_cache_total{{keyspace="{keyspace}",outcome="(\w+)"}} (\S+)$',
            data.decode(),
            re.MULTILINE,
        )
        return {outcome: int(float(count)) for outcome, count in found}


@pytest.fixture
def reader(stack: Stack) -> Reader:
    clusters.create("north")
    put("a", "b", "c")
    put("d", xml=BARE)
    gpu_published()
    return Reader(stack)


def test_the_second_who_asks_gets_the_same_bytes_without_a_build(reader: Reader) -> None:
    first = reader.same(TAG_NODES)
    before = reader.counts()
    second = reader.same(TAG_NODES)
    after = reader.counts()
    assert after["hit"] == before["hit"] + 1 if "hit" in before else 1
    assert after["miss"] == before["miss"]
    assert first.headers["ETag"] == second.headers["ETag"]
    same, nothing = reader.get(TAG_NODES, If_None_Match=first.headers["ETag"])
    assert (same.status, nothing) == (304, b"")
    assert same.headers["Cache-Control"] == "private, no-cache"


def test_every_change_shows_in_the_next_answer(reader: Reader) -> None:
    members = "/api/v1/tags/gpu/members"
    lists = (
        TAG_NODES,
        members,
        f"{TAG_NODES}?begin=1.1",
        "/api/v1/nodes/",
        "/api/v1/nodes/?tag=gpu&limit=2",
        "/api/v1/places?not_tag=gpu",
        "/api/v1/tags/",
    )
    worker = a_worker(name="w2")
    changes: dict[str, Callable[[], object]] = {
        "a node joins": lambda: (put("e"), work(worker)),
        "a node leaves": lambda: (put("a", xml=BARE), work(worker)),
        "a node is deleted": lambda: ingest.delete("b"),
        "a hostname changes": lambda: ingest.store([ingest.Upload("c", hostname="new")]),
        "a rebuild is forced": lambda: (rebuilds.request(["gpu"], None), work(worker)),
        "a cluster is renamed": lambda: clusters.rename(Cluster.objects.get(), "south"),
        "a definition changes": lambda: (
            tags.update("gpu", by=None, definition="//node"),
            work(worker),
        ),
        "a node moves": lambda: (
            clusters.create("east"),
            ingest.store([ingest.Upload("c", cluster="east")]),
        ),
        "a tag becomes manual": lambda: tags.update("gpu", by=None, kind="manual"),
        "an assignment": lambda: assignments.assign("gpu", ["d"], ["e"]),
    }
    seen = set()
    for what, change in changes.items():
        change()
        for path in lists:
            assert reader.same(path).status == 200, what
        seen.add(reader.get("/api/v1/nodes/?tag=gpu")[1])
    # Nothing of this looks alike, but for a rebuild that finds the same, and the other kind of tag.
    assert len(seen) == len(changes) - 2


def test_a_name_that_another_tag_takes_shows_that_tag(reader: Reader) -> None:
    reader.same(TAG_NODES)
    tags.update("gpu", by=None, name="other")
    assert reader.same(TAG_NODES).status == 404
    tags.create("gpu")
    assert json.loads(reader.get(TAG_NODES)[1])["results"] == []


def test_what_is_refused_is_refused_as_by_django(reader: Reader) -> None:
    """And never kept: those who may, get an answer."""
    path = f"{TAG_NODES}?limit=3"
    for header, status in (("", 401), ("Token x", 401), (token_of("uploader"), 403)):
        for _ in range(2):
            headers = {"Authorization": header} if header else {}
            response, data = call(reader.stack, "GET", path, **headers)
            assert (response.status, json.loads(data)["status"]) == (status, status)
            reader.same(path)
    for wrong in ("limit=0", "limit=10001", "after=x", "what=1"):
        assert reader.same(f"{TAG_NODES}?{wrong}").status == 400
    assert reader.same("/api/v1/tags/nobody/nodes").status == 404
    assert reader.same("/api/v1/nodes/?tag=nobody").status == 404
    assert reader.same("/api/v1/nodes/?cluster=nobody").status == 404
    response, _ = reader.get(TAG_NODES, If_Match='"x"')
    assert response.status == 412
    response, _ = reader.get(TAG_NODES, Host="elsewhere.example")
    assert response.status == 400


def test_pages_follow_each_other_and_name_the_host_that_was_asked(reader: Reader) -> None:
    path, seen = f"{TAG_NODES}?limit=2", []
    while path:
        reader.same(path)
        page = json.loads(reader.get(path)[1])
        seen += [node["system_id"] for node in page["results"]]
        path = page["next"] and page["next"].removeprefix(reader.stack.url)
    assert seen == ["a", "b", "c"]
    named = reader.stack.listen.replace("127.0.0.1", "localhost")
    _, data = reader.get(f"{TAG_NODES}?limit=2", Host=named)
    assert json.loads(data)["next"].startswith(f"http://{named}/")


@pytest.mark.parametrize(
    ("coding", "unpack"),
    [("zstd", lambda data: zstd.unpack(data, 1 << 20)), ("gzip", gzip.decompress), ("", bytes)],
)
def test_a_body_is_packed_as_the_client_takes_it(
    reader: Reader, coding: str, unpack: Callable[[bytes], bytes]
) -> None:
    _, plain = reader.get(TAG_NODES)
    response, data = reader.get(TAG_NODES, Accept_Encoding=coding)
    assert response.headers.get("Content-Encoding", "") == coding
    assert unpack(data) == plain


def lines(data: bytes) -> list[str]:
    return [json.loads(line)["system_id"] for line in data.splitlines()]


def test_all_nodes_of_a_tag_are_one_answer_of_lines(reader: Reader) -> None:
    accept = {"Accept": "application/x-ndjson"}
    for _ in range(2):
        response, data = reader.get(TAG_NODES, **accept)
        assert response.headers["Content-Type"] == "application/x-ndjson", data
        assert lines(data) == ["a", "b", "c"]
    assert reader.same(TAG_NODES).headers["ETag"] != response.headers["ETag"]
    response, _ = reader.get(f"{TAG_NODES}?limit=1", **accept)
    assert response.status == 400
    streamed = reader.django.get(TAG_NODES, headers=accept)
    assert lines(b"".join(streamed.streaming_content)) == ["a", "b", "c"]  # type: ignore[attr-defined]


def test_a_large_list_is_streamed_to_who_takes_it_only_unpacked(reader: Reader) -> None:
    """Some 1.3 MB: more than is kept unpacked."""
    tags.create("many")
    Partition.objects.update(capacity=65_536)
    partition = Partition.objects.get()
    names = [f"m{number:05}" for number in range(4200)]
    Node.objects.bulk_create(
        Node(system_id=name, hostname=255 * "h", partition=partition, slot=slot, rev=1)
        for slot, name in enumerate(names, start=8)
    )
    Partition.objects.update(next_slot=4300)
    assignments.assign("many", names, [])
    path = "/api/v1/tags/many/nodes"
    response, data = reader.get(path, Accept="application/x-ndjson")
    assert (len(data), lines(data)) == (int(response.headers["Content-Length"]), names)
    assert len(data) > 1 << 20
    response, packed = reader.get(path, Accept="application/x-ndjson", Accept_Encoding="zstd")
    assert len(packed) < len(data) / 10
    page = json.loads(reader.get(f"{path}?limit=10000")[1])
    assert ([node["system_id"] for node in page["results"]], page["next"]) == (names, None)


def test_statuses_are_kept_only_for_who_allows_an_age(reader: Reader) -> None:
    path, aged = "/api/v1/tags/", {"Cache_Control": "max-age=10"}
    first = reader.get(path, **aged)[1]
    tags.update("gpu", by=None, comment="changed")
    response, kept = reader.get(path, **aged)
    assert (kept, response.headers["Age"]) == (first, "0")
    for fresh in ({}, {"Cache_Control": "max-age=10, no-cache"}, {"Cache_Control": "max-age=0"}):
        response, data = reader.get(path, **fresh)
        assert b'"changed"' in data
    same, nothing = reader.get(path, If_None_Match=response.headers["ETag"])
    assert (same.status, nothing) == (304, b"")


def test_a_rebuild_is_a_status(reader: Reader) -> None:
    made = rebuilds.request(["gpu"], None)
    worker = a_worker(name="w2")
    for path in (f"/api/v1/rebuilds/{made.uuid}", "/api/v1/rebuilds/"):
        reader.same(path)
        work(worker)
        reader.same(path)
    assert reader.same("/api/v1/rebuilds/00000000-0000-0000-0000-000000000000").status == 404


def test_many_who_ask_at_once_make_one_build(reader: Reader) -> None:
    reader.get(TAG_NODES)
    put("e", xml=BARE)
    before = reader.counts()
    answers = at_once(*([lambda: reader.get(TAG_NODES)[1]] * 16))
    after = reader.counts()
    assert len(set(answers)) == 1
    assert after["miss"] == before["miss"] + 1
    assert sum(after.values()) == sum(before.values()) + 16


def test_a_flush_holds_at_once_and_only_for_its_scope(reader: Reader) -> None:
    def builds(path: str, keyspace: str) -> bool:
        before = reader.counts(keyspace)["miss"]
        reader.same(path)
        return reader.counts(keyspace)["miss"] > before

    tags.create("other")
    other = "/api/v1/tags/other/nodes"
    for path, keyspace in (
        (TAG_NODES, "tag_nodes"),
        (other, "tag_nodes"),
        ("/api/v1/nodes/", "nodes"),
    ):
        reader.same(path)
        assert not builds(path, keyspace)
    controls.flush(Scope(tag="gpu"))
    assert builds(TAG_NODES, "tag_nodes")
    assert not builds(other, "tag_nodes")
    controls.flush(Scope("nodes"))
    assert builds("/api/v1/nodes/", "nodes")
    assert not builds(TAG_NODES, "tag_nodes")
    controls.flush(Scope())
    assert builds(other, "tag_nodes")
    assert builds("/api/v1/nodes/", "nodes")


def test_what_is_switched_off_is_never_kept(reader: Reader) -> None:
    controls.switch(Scope(tag="gpu"), is_off=True)
    before = reader.counts()
    for _ in range(3):
        reader.same(TAG_NODES)
    assert reader.counts() == before
    controls.switch(Scope(), is_off=False)
    reader.same(TAG_NODES)
    assert sum(reader.counts().values()) == sum(before.values()) + 1


def test_the_command_and_the_api_say_and_do_the_same(reader: Reader) -> None:
    reader.get(TAG_NODES)
    admin = reader.django
    asked = admin.post("/api/v1/cache/flush", {"keyspace": "nodes"}, format="json")
    assert [control["scope"] for control in asked.json()["controls"]] == ["keyspace nodes"]
    admin.post("/api/v1/cache/disable", {"tag": "gpu"}, format="json")

    def command(*arguments: str) -> str:
        out = io.StringIO()
        call_command("cache", *arguments, stdout=out)
        return out.getvalue()

    partition = str(Partition.objects.get().id)
    command("flush", "--partition", partition)
    command("disable", "--keyspace", "tags")
    command("enable", "--tag", "gpu")
    found = json.loads(command("stats", "--json"))
    assert {control["scope"]: control["is_off"] for control in found["controls"]} == {
        "keyspace nodes": False,
        "keyspace tags": True,
        "tag gpu": False,
        f"partition {partition}": False,
    }

    def looked_up() -> int:
        (row,) = (
            row
            for row in json.loads(command("stats", "--json"))["keyspaces"]
            if row["keyspace"] == "tag_nodes"
        )
        assert row["lookups"] == row["hits"] + row["misses"] + row["coalesced"]
        return int(row["lookups"])

    until(looked_up, "the server has reported")
    for wrong, status in (({"keyspace": "x"}, 400), ({"tag": "x"}, 404), ({"partition": 0}, 404)):
        assert admin.post("/api/v1/cache/flush", wrong, format="json").status_code == status
    assert client_of("operator").get("/api/v1/cache").status_code == 403
