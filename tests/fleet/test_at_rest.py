"""Documents at rest: packed with dictionaries of their cluster, and as good as the XML."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
import zstandard
from django.core.management import CommandError, call_command
from django.db import transaction

from fixtures.generate import generate
from tagmill import sql
from tagmill.errors import DocumentDamaged
from tagmill.fleet import at_rest, batches, clusters, dictionaries, incarnation, packing
from tagmill.fleet.at_rest import Dictionary
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Cluster, Document, DocumentDictionary, Partition
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill_wire import frames
from tagmill_wire.frames import PackedBatch
from tagmill_wire.messages import Batch, dump
from tests.support.fleet import BARE, GPU, node, north, put, the_partition
from tests.support.sql import execute
from tests.support.workers import pages

pytestmark = pytest.mark.django_db

NODES = 48
PLATFORM = [item.probes["lshw"] for item in generate(NODES, 1)]


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    at_rest.forget()
    yield
    at_rest.forget()


def store(texts: list[str], cluster: str | None = None, prefix: str = "n") -> None:
    uploads = [
        Upload(f"{prefix}{number}", cluster, probes={"lshw": text})
        for number, text in enumerate(texts)
    ]
    assert {item.error for item in ingest.store(uploads)} == {None}


@pytest.fixture
def packed(db: None) -> None:
    north()
    store(PLATFORM)
    assert packing.run_all() == NODES


def document(name: str = "n0", probe: str = "lshw") -> Document:
    return Document.objects.get(node=node(name), probe=probe)


def texts() -> dict[str, str]:
    found = Document.objects.select_related("node").filter(probe="lshw")
    return {item.node.system_id: item.xml for item in found}


def test_documents_are_packed_to_a_tenth_and_read_as_they_were(packed: None) -> None:
    rows = list(Document.objects.all())
    assert {row.plain for row in rows} == {None}
    assert sum(len(bytes(row.packed or b"")) for row in rows) < 0.1 * sum(row.size for row in rows)
    assert texts() == {f"n{number}": text for number, text in enumerate(PLATFORM)}
    sent = [item.probes for item in pages(the_partition().id)[1]]
    assert sent == [{"lshw": text} for text in PLATFORM]
    assert packing.state().node is None and packing.state().left == 0
    # What is packed is known by the digest of its XML.
    (verdict,) = ingest.store([Upload("n0", probes={"lshw": PLATFORM[0]})])
    assert verdict.outcome == "unchanged"


def test_an_upload_is_packed_when_it_is_stored(packed: None) -> None:
    changed = PLATFORM[0].replace("</", "<!-- x --></", 1)
    store([changed])
    row = document()
    assert row.plain is None and row.dictionary_id == document("n1").dictionary_id
    assert row.xml == changed and pages(the_partition().id, 1)[1][0].probes == {"lshw": changed}


def test_what_would_get_longer_stays_xml_and_is_no_reason_to_pack_anew(packed: None) -> None:
    put("tiny", xml=b"<a/>")
    assert document("tiny").plain == "<a/>"
    ((cluster, nodes),) = dictionaries.due(0)
    assert not dictionaries.look(cluster, nodes, 0)


def test_few_documents_are_not_packed_and_nothing_is_where_it_is_switched_off(
    configure: Callable[..., None],
) -> None:
    north()
    store(PLATFORM[: dictionaries.MIN_DOCUMENTS - 1])
    assert packing.run_all() == 0 and not DocumentDictionary.objects.exists()
    store(PLATFORM)
    configure(pack_documents="false")
    assert packing.run(1.0) == packing.run_all() == 0 and not DocumentDictionary.objects.exists()
    with pytest.raises(CommandError, match="TAGMILL_PACK_DOCUMENTS"):
        call_command("pack_documents")


def test_a_switched_off_server_stores_xml_and_reads_what_is_packed(
    packed: None, configure: Callable[..., None]
) -> None:
    configure(pack_documents="false")
    put("n0")
    assert document().plain == GPU.decode() and document("n1").xml == PLATFORM[1]


def test_the_background_task_waits_until_all_know_the_dictionary(db: None) -> None:
    north()
    store(PLATFORM)
    assert packing.run(5.0) == 0
    assert DocumentDictionary.objects.count() == 1 and packing.state().left == NODES
    execute("UPDATE document_packing SET not_before = now()")
    assert packing.run(5.0) == NODES and packing.state().left == 0
    # Just looked at: there is nothing to do.
    assert packing.run(5.0) == 0


def test_a_conversion_that_is_killed_goes_on_where_it_was(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    north()
    store(PLATFORM)
    packing.run(5.0)
    execute("UPDATE document_packing SET not_before = now()")
    monkeypatch.setattr(packing, "MAX_DOCUMENTS", 10)
    assert packing.step() == 10
    before = packing.state()
    assert before.left == NODES - 10
    with pytest.raises(RuntimeError, match="killed"), transaction.atomic():
        assert packing.step() == 10
        raise RuntimeError("killed")
    assert packing.state() == before
    # Both forms are served.
    assert texts() == {f"n{number}": text for number, text in enumerate(PLATFORM)}
    assert packing.run(5.0) == NODES - 10
    assert not Document.objects.exclude(plain=None).exists()


def test_an_upload_during_the_conversion_wins(packed: None) -> None:
    row = document()
    store([BARE.decode()])
    values = {
        "nodes": [row.node_id],
        "probes": ["lshw"],
        "digests": [bytes(row.digest)],
        "packed": [bytes(row.packed or b"")],
        "dictionaries": [row.dictionary_id],
    }
    sql.run_binary(packing.__file__, "repack_documents", values)
    assert document().xml == BARE.decode()


def test_another_dictionary_comes_when_the_ratio_falls_and_the_first_goes_when_unused(
    packed: None,
) -> None:
    (first,) = DocumentDictionary.objects.all()
    others = [item.probes["lshw"] for item in generate(NODES, 2, "varied")]
    store(others)
    assert document().dictionary_id == first.id
    packing.run_all()
    last = DocumentDictionary.objects.get(version=2)
    assert {row.dictionary_id for row in Document.objects.all()} == {last.id}
    fallen = dictionaries.ratio([text.encode() for text in others], at_rest.dictionary(first.id))
    assert first.ratio * dictionaries.WORSE < fallen and last.ratio < dictionaries.BETTER * fallen
    # What it says of its own documents is no reason for another.
    packing.run_all()
    assert DocumentDictionary.objects.count() == 2
    # It has not been unused for long.
    assert DocumentDictionary.objects.filter(id=first.id).exists()
    execute("UPDATE document_dictionary SET trained_at = now() - interval '1 hour'")
    assert dictionaries.forget() == 1 and DocumentDictionary.objects.get() == last


def test_a_dictionary_that_a_document_names_is_not_deleted(packed: None) -> None:
    (first,) = DocumentDictionary.objects.all()
    execute(
        "INSERT INTO document_dictionary"
        " (id, cluster_id, probe, version, data, ratio, ratio_now, trained_at)"
        " SELECT 1, cluster_id, probe, 2, data, 1, 1, now() - interval '1 hour'"
        " FROM document_dictionary"
    )
    assert dictionaries.forget() == 0
    with pytest.raises(Exception, match="foreign key"), transaction.atomic():
        execute("DELETE FROM document_dictionary WHERE id = %s", [first.id])
        execute("SET CONSTRAINTS ALL IMMEDIATE")
    execute("DELETE FROM document_dictionary WHERE id = 1")


def test_a_node_that_moves_is_read_in_its_new_cluster_and_packed_with_its_dictionary(
    packed: None,
) -> None:
    south = clusters.create("south")
    store([text.replace("</", "<!-- s --></", 1) for text in PLATFORM], "south", "s")
    packing.run_all()
    ingest.store([Upload("n0", "south")])
    first, second = DocumentDictionary.objects.order_by("cluster__name")
    assert document().xml == PLATFORM[0] and document().dictionary == first
    packing.run_all()
    assert document().xml == PLATFORM[0] and document().dictionary == second
    assert second.cluster == south


def test_a_cluster_that_goes_leaves_dictionaries_that_documents_elsewhere_name(
    packed: None,
) -> None:
    clusters.create("south")
    ingest.store([Upload(f"n{number}", "south") for number in range(NODES)])
    delete_cluster(Cluster.objects.get(name="north"))
    assert texts() == {f"n{number}": text for number, text in enumerate(PLATFORM)}
    (left,) = DocumentDictionary.objects.all()
    assert left.cluster is None and dictionaries.forget() == 0


def damage(name: str) -> None:
    execute(
        "UPDATE document SET packed = overlay(packed placing '\\xff00ff' from 40)"
        " WHERE node_id = %s",
        [node(name).id],
    )


def without_dictionary(name: str) -> None:
    """As after an accident: only a superuser can do this."""
    execute("SET session_replication_role = replica")
    execute("UPDATE document SET dictionary_id = 7 WHERE node_id = %s", [node(name).id])
    execute("SET session_replication_role = DEFAULT")


@pytest.mark.parametrize("hurt", [damage, without_dictionary])
def test_a_document_that_cannot_be_read_says_so_and_holds_up_no_other(
    packed: None, hurt: Callable[[str], None]
) -> None:
    hurt("n3")
    with pytest.raises(DocumentDamaged, match="delete this probe's document"):
        _ = document("n3").xml
    sent = {item.slot: item.probes for item in pages(the_partition().id)[1]}
    assert sent.pop(3) == {"lshw": ""}
    assert all(probes == {"lshw": PLATFORM[slot]} for slot, probes in sent.items())
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("document", "n3")
    # Another probe is stored beside it.
    (verdict,) = ingest.store([Upload("n3", probes={"lldp": BARE})])
    assert verdict.outcome == "updated" and document("n3", "lldp").xml == BARE.decode()
    # The conversion goes on, and counts it.
    execute("UPDATE document SET dictionary_id = %s WHERE dictionary_id <> 7", [other_dictionary()])
    with pytest.raises(CommandError, match="1 documents cannot be read"):
        call_command("pack_documents", stdout=StringIO())
    # As it says: deleted and uploaded again.
    ingest.store([Upload("n3", probes={"lshw": None})])
    ingest.store([Upload("n3", probes={"lshw": PLATFORM[3]})])
    assert document("n3").xml == PLATFORM[3]
    call_command("pack_documents", stdout=StringIO())


def trained(samples: list[str]) -> Dictionary:
    made = dictionaries.train([text.encode() for text in samples])
    assert made is not None
    return made


def other_dictionary() -> int:
    """The same dictionary by another version, so that everything is packed anew."""
    ((key,),) = execute("SELECT id FROM document_dictionary")
    made = trained(PLATFORM[1:])
    execute(
        "INSERT INTO document_dictionary (id, cluster_id, probe, version, data, ratio, ratio_now)"
        " SELECT %s, cluster_id, probe, 2, %s, 1, 1 FROM document_dictionary WHERE id = %s",
        [made.id, made.data, key],
    )
    return int(key)


def test_a_frame_is_unpacked_to_its_documents_size_at_most() -> None:
    made = trained(PLATFORM)
    frame = made.pack(b"<a/>" * 1000)
    with pytest.raises(ValueError, match="limit"):
        made.unpack(frame, 100)
    with pytest.raises(ValueError, match="in place of"):
        made.unpack(frame, 5000)
    # It declares no size at all.
    stream = zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(made.data))
    endless = stream.compressobj()
    data = endless.compress(b"a" * 1_000_000) + endless.flush()
    with pytest.raises(ValueError, match="zstd"):
        made.unpack(data, 100)


def test_a_dictionary_that_is_not_in_this_database_is_refused_and_another_taken(
    transactional_db: None,
) -> None:
    """What a process remembers after the database went back."""
    cluster = north()
    foreign = trained(PLATFORM)
    at_rest.current(cluster.id, "lshw")
    at_rest._current.ids[cluster.id, "lshw"] = foreign.id
    at_rest._loaded[foreign.id] = foreign
    store(PLATFORM[:2])
    assert texts() == {"n0": PLATFORM[0], "n1": PLATFORM[1]}
    assert document().plain == PLATFORM[0]


def test_a_dictionary_of_other_bytes_is_not_believed(packed: None) -> None:
    (key,) = DocumentDictionary.objects.values_list("id", flat=True)
    at_rest._loaded.clear()
    execute("UPDATE document_dictionary SET data = data || '\\x00'")
    with pytest.raises(DocumentDamaged, match=f"dictionary {key} is damaged"):
        _ = document().xml
    # Uploads go on.
    put("n0")
    assert document().xml == GPU.decode()


def test_the_command_prints_a_document_and_how_it_is_stored(packed: None) -> None:
    put("plain", xml=BARE)
    out = StringIO()
    call_command("document", "n1", stdout=out)
    assert out.getvalue() == PLATFORM[1] + ("" if PLATFORM[1].endswith("\n") else "\n")
    for name, said in (("n1", "packed to"), ("plain", "as XML")):
        out = StringIO()
        call_command("document", name, "--list", stdout=out)
        assert said in out.getvalue()
    with pytest.raises(CommandError, match="no document"):
        call_command("document", "n1", "--probe", "lldp")


def test_packed_rows_stay_in_the_table(packed: None) -> None:
    """Neither packed again by PostgreSQL nor moved out of the row."""
    storage = execute(
        "SELECT attstorage FROM pg_attribute"
        " WHERE attrelid = 'document'::regclass AND attname = 'packed'"
    )
    assert storage == [("e",)]
    ((out,),) = execute(
        "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'document'::regclass"
    )
    store([text.replace("</", "<!-- y --></", 1) for text in PLATFORM])
    ((after,),) = execute(
        "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'document'::regclass"
    )
    assert after == out


def test_two_clusters_with_the_very_same_documents_have_a_dictionary_each(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where zstd's number, which is drawn, is the same for both."""
    drawn = iter([40_000, 40_000, 40_001])
    monkeypatch.setattr(secrets, "choice", lambda _: next(drawn))
    for cluster in ("north", "south"):
        clusters.create(cluster)
        store(PLATFORM, cluster, prefix=cluster)
    assert packing.run_all() == 2 * NODES
    found = DocumentDictionary.objects.values_list("cluster__name", "id", "version")
    assert [(name, version) for name, _, version in found.order_by("cluster__name")] == [
        ("north", 1),
        ("south", 1),
    ]
    one, two = (bytes(item.data) for item in DocumentDictionary.objects.order_by("cluster"))
    assert one[:4] + one[8:] == two[:4] + two[8:]
    assert texts() == {
        f"{cluster}{number}": text
        for cluster in ("north", "south")
        for number, text in enumerate(PLATFORM)
    }


def page(is_packed: bool = True) -> tuple[Batch | PackedBatch, bytes]:
    read = batches.packed_in if is_packed else batches.read_in
    bounds = {"since": None, "after": None, "max_nodes": 1000, "max_bytes": 1 << 30}
    found = read(str(incarnation.current()), node("n0").partition_id, **bounds)
    return found, dump(found) if isinstance(found, Batch) else frames.dump(found)


def test_a_page_of_packed_documents_says_what_the_page_of_xml_says(packed: None) -> None:
    put("tiny", xml=b"<a/>")
    plain, expected = page(is_packed=False)
    found, data = page()
    assert isinstance(plain, Batch) and isinstance(found, PackedBatch)
    assert (found.rev, found.next) == (plain.rev, plain.next)
    assert frames.load(data, 1 << 30) == [
        (item.slot, item.rev, item.probes) for item in plain.nodes
    ]
    assert len(data) < 0.1 * len(expected)


def test_a_page_brings_no_dictionary_for_few_documents_nor_that_of_another_cluster(
    packed: None,
) -> None:
    south = clusters.create("south")
    ingest.store([Upload("n0", "south")])
    found, _ = page()
    # It is the only document there, and its dictionary is made of the other cluster's.
    assert found.partition == Partition.objects.get(cluster=south).id
    assert isinstance(found, Batch) and PLATFORM[0] in (found.nodes[0].probes or {}).values()
    ingest.store([Upload(f"n{number}", "south") for number in range(NODES)])
    found, _ = page()
    assert isinstance(found, Batch)


def test_a_page_goes_out_with_what_cannot_be_read(packed: None) -> None:
    without_dictionary("n3")
    damage("n4")
    _, data = page()
    found = {slot: probes for slot, _, probes in frames.load(data, 1 << 30)}
    assert found.pop(3) == found.pop(4) == {"lshw": ""}
    assert found == {s: {"lshw": text} for s, text in enumerate(PLATFORM) if s not in (3, 4)}
