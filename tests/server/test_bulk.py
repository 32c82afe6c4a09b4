"""Many nodes at once: changed, deleted, and exported as what an import takes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
import zstandard

from loadtest.rig.stack import Stack
from tagmill.fleet import clusters
from tagmill.fleet.models import Node
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill.tags import assignments, tags
from tests.server.test_serve import call, token_of
from tests.support.fleet import BARE, GPU, put

NDJSON = "application/x-ndjson"
NODES = "/api/v1/nodes"


class Client:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.tokens = {role: token_of(role) for role in ("viewer", "uploader", "operator")}

    def post(self, name: str, lines: Sequence[Any], role: str = "operator") -> list[Any]:
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return self.sent(name, body, role)

    def sent(self, name: str, body: bytes, role: str = "operator") -> list[Any]:
        headers = {"Authorization": self.tokens[role], "Content_Type": NDJSON}
        response, data = call(self.stack, "POST", f"{NODES}/{name}", body, **headers)
        assert response.status == 200, data
        return [json.loads(line) for line in data.splitlines()]

    def export(self, query: str = "", **headers: str) -> tuple[Any, bytes]:
        given = {"Accept": NDJSON, "Authorization": self.tokens["viewer"], **headers}
        return call(self.stack, "GET", f"{NODES}/{query}", **given)


@pytest.fixture
def client(stack: Stack) -> Client:
    clusters.create("north")
    clusters.create("south")
    put("a", "b", "c", cluster="north")
    return Client(stack)


def outcomes(verdicts: list[Any]) -> list[str]:
    *found, last = verdicts
    counted = {name: count for name, count in last["summary"].items() if count}
    names = [verdict["outcome"] for verdict in found]
    assert counted == {"lines": len(found), **{name: names.count(name) for name in {*names}}}
    return names


def test_many_are_changed_each_for_itself(client: Client) -> None:
    lines = [
        {"system_id": "a", "hostname": "new"},
        {"system_id": "b", "cluster": "south"},
        {"system_id": "c"},
        {"system_id": "nobody", "hostname": "x"},
        {"system_id": "c", "probes": {}},
        {"system_id": "c", "cluster": "nowhere"},
    ]
    verdicts = client.post("update", lines, "uploader")
    assert outcomes(verdicts) == ["updated", "updated", "unchanged", *["refused"] * 3]
    codes = [verdict.get("error", {}).get("code") for verdict in verdicts[3:6]]
    assert codes == ["not_found", "invalid", "not_found"]
    assert Node.objects.get(system_id="a").hostname == "new"
    moved = Node.objects.get(system_id="b", deleted_at=None)
    assert moved.partition.cluster.name == "south"
    assert not Node.objects.filter(system_id="nobody").exists()


def test_many_are_deleted_each_for_itself(client: Client) -> None:
    tags.create("by-hand")
    assignments.assign("by-hand", ["a", "b"], [])
    lines = [{"system_id": name} for name in ("a", "nobody", "b", "a")]
    verdicts = client.post("delete", lines)
    assert outcomes(verdicts) == ["deleted", "refused", "deleted", "refused"]
    assert verdicts[0]["settled"] in (True, False)
    assert verdicts[3]["error"]["code"] == "not_found"
    assert [*Node.objects.filter(deleted_at=None).values_list("system_id", flat=True)] == ["c"]
    _, data = call(
        client.stack, "GET", "/api/v1/tags/by-hand", Authorization=client.tokens["viewer"]
    )
    assert json.loads(data)["node_count"] == 0
    (last,) = client.sent("delete", b"")
    assert last == {"summary": {"lines": 0, "deleted": 0, "refused": 0}}


def test_whoever_only_uploads_deletes_nothing(client: Client) -> None:
    for name, role in (("delete", "uploader"), ("delete", "viewer"), ("update", "viewer")):
        headers = {"Authorization": client.tokens[role], "Content_Type": NDJSON}
        body = b'{"system_id": "a"}'
        response, _ = call(client.stack, "POST", f"{NODES}/{name}", body, **headers)
        assert response.status == 403
    assert Node.objects.filter(deleted_at=None).count() == 3


def test_what_is_exported_is_what_an_import_makes(client: Client) -> None:
    probes = {"lshw": GPU, "lldp": "<lldp xmlns='lldp'>ü\n</lldp>".encode()}
    ingest.store(
        [
            Upload("d", "south", "höst", "switch", probes),
            Upload("bare", "south"),
            Upload("b", "south"),
        ]
    )
    ingest.delete("c")
    response, whole = client.export("?include=probes")
    assert (response.status, response.headers["Content-Type"]) == (200, NDJSON)
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["system_id"] for line in lines] == ["a", "d", "bare", "b"]
    assert lines[1] == {
        **{"system_id": "d", "cluster": "south", "hostname": "höst", "kind": "switch"},
        "probes": {probe: xml.decode() for probe, xml in sorted(probes.items())},
    }
    assert lines[2]["probes"] == {}
    # Into the fleet as it is, and into one that is empty.
    assert set(outcomes(client.sent("import", whole))) == {"unchanged"}
    assert outcomes(client.post("delete", [{"system_id": line["system_id"]} for line in lines]))
    assert client.export()[1] == b""
    assert set(outcomes(client.sent("import", whole))) == {"created"}
    again = client.export("?include=probes")[1]
    assert sorted(again.splitlines()) == sorted(whole.splitlines())


def test_an_export_takes_the_filters_of_the_list(client: Client) -> None:
    put("s", cluster="south", xml=BARE)
    tags.create("gpu", definition="//node[@class='display']")

    def names(query: str) -> list[str]:
        return [json.loads(line)["system_id"] for line in client.export(query)[1].splitlines()]

    assert names("?cluster=south") == ["s"]
    assert names("?q=a") == ["a"]
    tags.create("by-hand")
    assignments.assign("by-hand", ["b", "s"], [])
    assert names("?tag=by-hand&cluster=north") == ["b"]
    assert "probes" not in json.loads(client.export()[1].splitlines()[0])
    for query, status in (
        *(("?limit=1", 400), ("?include=tags", 400), ("?tag=nothing", 404)),
        ("?cluster=nowhere", 404),
    ):
        response, data = client.export(query)
        assert (response.status, json.loads(data)["status"]) == (status, status)
    for role in ("uploader", None):
        header = client.tokens["uploader"] if role else "Token x"
        response, _ = client.export(Authorization=header)
        assert response.status == (403 if role else 401)
    both = client.export(Accept=f"application/json, {NDJSON}")[0]
    assert both.headers["Content-Type"] == "application/json"
    assert client.export("?include=probes", Accept="application/json")[0].status == 400


def test_an_export_is_packed_as_the_client_takes_it(client: Client) -> None:
    plain = client.export("?include=probes")[1]
    response, data = client.export("?include=probes", Accept_Encoding="gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(data) == plain
    response, data = client.export("?include=probes", Accept_Encoding="gzip, zstd")
    assert response.headers["Content-Encoding"] == "zstd"
    assert zstandard.ZstdDecompressor().decompressobj().decompress(data) == plain


def test_a_put_of_a_document_makes_the_node_where_a_cluster_is_named(client: Client) -> None:
    def put_document(query: str, **headers: str) -> tuple[int, Any]:
        given = {"Authorization": client.tokens["uploader"], "Content_Type": "application/xml"}
        path = f"{NODES}/new/document{query}"
        response, data = call(client.stack, "PUT", path, GPU, **given, **headers)
        return response.status, json.loads(data)

    status, found = put_document("")
    assert (status, found["code"]) == (404, "not_found")
    assert put_document("?cluster=nowhere")[0] == 404
    assert put_document("?cluster=north", If_Match="*")[0] == 412
    status, found = put_document("?cluster=north", If_None_Match="*")
    assert (status, found["outcome"]) == (201, "created")
    assert put_document("?cluster=north", If_None_Match="*")[0] == 412
    status, found = put_document("?cluster=north")
    assert (status, found["outcome"]) == (200, "unchanged")
    assert put_document("?cluster=south&probe=lldp")[0] == 200
    assert Node.objects.get(system_id="new", deleted_at=None).partition.cluster.name == "south"
