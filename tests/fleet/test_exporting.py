"""Exports in chunks that are bounded, and nodes that are replaced."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tagmill.errors import DatabaseUnavailable, InvalidDocument, PreconditionFailed
from tagmill.fleet import at_rest, clusters
from tagmill.fleet.documents import MAX_PROBES
from tagmill.fleet.models import Document, DocumentDictionary, Node
from tagmill.flows import exports, ingest, replacing, together
from tagmill.flows.ingest import Upload
from tagmill.tags.places import BEFORE_ALL, Filters
from tests.support.fleet import BARE, GPU, put

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None) -> None:
    clusters.create("north")


def chunks(*, with_documents: bool = True) -> list[list[str]]:
    """The names in each chunk."""
    found, after = [], BEFORE_ALL
    while True:
        chunk = exports.chunk(Filters(), after, with_documents=with_documents)
        found.append([orjson.loads(line)["system_id"] for line in chunk.lines.splitlines()])
        if chunk.after is None:
            return found
        after = chunk.after


def test_a_chunk_holds_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    put("a", "b", "c", "d", "e")
    assert chunks() == [["a", "b", "c", "d", "e"]]
    monkeypatch.setattr(exports, "MAX_NODES", 2)
    assert chunks() == chunks(with_documents=False) == [["a", "b"], ["c", "d"], ["e"]]
    monkeypatch.setattr(exports, "MAX_NODES", 256)
    # Two documents of three nodes each: what is beyond the first waits for the next chunk.
    ingest.store([Upload(name, probes={"lldp": BARE}) for name in ("a", "c", "d")])
    monkeypatch.setattr(exports, "MAX_BYTES", 2 * len(GPU) + len(BARE))
    assert chunks() == [["a", "b"], ["c"], ["d", "e"]]
    assert chunks(with_documents=False) == [["a", "b", "c", "d", "e"]]
    monkeypatch.setattr(exports, "MAX_BYTES", 1)
    assert chunks() == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_a_fleet_without_nodes_is_one_empty_chunk() -> None:
    assert chunks() == [[]]


def test_a_damaged_document_is_left_out_and_the_others_are_there() -> None:
    ingest.store([Upload("a", probes={"lshw": GPU, "lldp": BARE}), Upload("b")])
    data = b"what documents have in common"
    key = at_rest.identity(data)
    DocumentDictionary.objects.create(
        id=key, probe="lldp", version=1, data=data, ratio=0.1, ratio_now=0.1
    )
    damaged = Document.objects.filter(probe="lldp")
    damaged.update(plain=None, packed=b"damaged", dictionary=key)
    first, second = exports.chunk(Filters(), BEFORE_ALL, with_documents=True).lines.splitlines()
    assert orjson.loads(first)["probes"] == {"lshw": GPU.decode()}
    assert orjson.loads(second)["probes"] == {}


def stored(name: str) -> tuple[str, str, dict[str, str]]:
    node = Node.objects.get(system_id=name, deleted_at=None)
    return node.hostname, node.kind, {each.probe: each.xml for each in node.documents.all()}


def test_a_node_is_as_the_upload_says_whatever_it_was() -> None:
    made = replacing.put(Upload("a", hostname="h", kind="switch", probes={"lshw": GPU}))
    assert made.outcome == "created"
    again = replacing.put(Upload("a", hostname="h", kind="switch", probes={"lshw": GPU}))
    assert again.outcome == "unchanged"
    assert replacing.put(Upload("a", probes={"lldp": BARE})).outcome == "updated"
    assert stored("a") == ("", "machine", {"lldp": BARE.decode()})
    clusters.create("south")
    # It stays where it is.
    assert replacing.put(Upload("a", hostname="h")).outcome == "updated"
    assert stored("a") == ("h", "machine", {})
    replacing.put(Upload("a", "south", probes={"lshw": GPU}))
    assert stored("a") == ("", "machine", {"lshw": GPU.decode()})
    with pytest.raises(InvalidDocument):
        replacing.put(Upload("a", probes={"lshw": b"<a>"}))


def test_as_many_documents_as_a_node_may_have_take_the_place_of_as_many_others() -> None:
    def many(prefix: str) -> dict[str, bytes | str | None]:
        return {f"{prefix}{number}": BARE for number in range(MAX_PROBES)}

    replacing.put(Upload("a", probes=many("one")))
    replacing.put(Upload("a", probes=many("two")))
    assert stored("a")[2].keys() == many("two").keys()


def test_documents_that_come_meanwhile_are_replaced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    put("a")
    store, asked = together.store, []

    def overtaken(upload: Upload) -> Any:
        asked.append(upload)
        if len(asked) == 1:
            store(Upload("a", probes={"lldp": BARE}))
        return store(upload)

    monkeypatch.setattr(together, "store", overtaken)
    replacing.put(Upload("a", hostname="new"))
    assert (len(asked), stored("a")) == (2, ("new", "machine", {}))

    def always(upload: Upload) -> Any:
        asked.append(upload)
        store(Upload("a", probes={f"p{len(asked)}": BARE}))
        return store(upload)

    monkeypatch.setattr(together, "store", always)
    with pytest.raises(DatabaseUnavailable):
        replacing.put(Upload("a"))


def test_a_condition_is_asked_about_the_node_or_none() -> None:
    seen = []

    def refuse(node: Any) -> None:
        seen.append(node and node.system_id)
        raise PreconditionFailed("no")

    for _ in range(2):
        with pytest.raises(PreconditionFailed):
            replacing.put(Upload("a", expects=refuse))
        put("a")
    assert seen == [None, "a"]
