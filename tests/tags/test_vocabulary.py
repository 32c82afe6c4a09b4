"""Vocabularies of partitions: asked for, learnt, and merged for the fleet."""

from __future__ import annotations

import base64
import time
import uuid
import zlib

import pytest
import zstandard
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from fixtures.generate import generate
from tagmill.fleet import clusters, models, vocabularies
from tagmill.fleet.models import Cluster, Partition
from tagmill.flows import completions, ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.tags import tags
from tagmill.work import leases
from tagmill_expressions import documents
from tagmill_expressions.vocabulary import MAX_KEPT, State, Vocabulary
from tagmill_wire import zstd
from tagmill_wire.messages import Completion, PartitionResult
from tests.support.fleet import GPU, put, the_partition
from tests.support.workers import a_worker, complete, result

pytestmark = pytest.mark.django_db


def words(*xml: str) -> Vocabulary:
    return Vocabulary.of(documents.compose({"lshw": text}) for text in xml)


def packed(vocabulary: Vocabulary) -> str:
    return base64.b64encode(zstandard.compress(vocabulary.dump())).decode()


def names(vocabulary: Vocabulary | None) -> set[str]:
    assert vocabulary is not None
    return {state.name for state in vocabulary.elements}


@pytest.fixture
def partition() -> Partition:
    clusters.create("north")
    put("a", "b", cluster="north")
    return the_partition()


def learn(partition: Partition, base: int, *xml: str, rev: int | None = None) -> None:
    rev = partition.rev if rev is None else rev
    learn_parts(partition, rev, base, [packed(words(*xml))] if xml else [])


def learn_parts(partition: Partition, rev: int, base: int, parts: list[str]) -> None:
    found = vocabularies.read(partition.id, rev, base, parts, vocabularies.Budget())
    if found is not None:
        vocabularies.learn(found)


def stored() -> tuple[int, set[str]]:
    row = models.Vocabulary.objects.get()
    return row.rev, names(Vocabulary.load(zstandard.decompress(bytes(row.data))))


# -- what is asked for -----------------------------------------------------------------------------


def asked() -> int | None:
    """What an idle worker is asked to learn of the only partition; None: nothing at all."""
    leases.learn()
    worker = a_worker(name=f"w{time.monotonic_ns()}")
    found = leases.grant(worker, 1, []).answer.leases
    assert all(lease.expressions == [] for lease in found)
    leases.give_up(worker, [lease.lease for lease in found], "")
    return found[0].vocabulary_rev if found else None


def test_a_partition_is_learnt_once_and_then_what_changes(partition: Partition) -> None:
    assert asked() == -1
    learn(partition, -1, "<a/>")
    assert asked() is None
    put("a", xml=b"<list/>")
    assert asked() == partition.rev


def test_another_format_is_learnt_anew(partition: Partition) -> None:
    learn(partition, -1, "<a/>")
    models.Vocabulary.objects.update(version=0)
    assert asked() == -1
    assert vocabularies.fleet().missing == 1
    learn(partition, -1, "<b/>")
    assert stored() == (partition.rev, {"b"})


def test_a_partition_whose_documents_were_counted_over_and_over_is_learnt_anew(
    partition: Partition,
) -> None:
    learn(partition, -1, *["<a/>"] * 68)
    assert asked() is None
    put("a", xml=b"<list/>")
    partition.refresh_from_db()
    learn(partition, partition.rev - 1, "<list/>")
    assert asked() == -1


# -- what is accepted ------------------------------------------------------------------------------


def test_a_change_adds_to_what_is_known(partition: Partition) -> None:
    learn(partition, -1, "<a/>", rev=3)
    learn(partition, 3, "<b/>", rev=5)
    assert stored() == (5, {"a", "b"})
    learn(partition, 5, rev=6)
    assert stored() == (6, {"a", "b"})


def test_what_overlaps_is_welcome_and_what_leaves_a_gap_is_not(partition: Partition) -> None:
    learn(partition, 2, "<a/>", rev=3)
    assert not models.Vocabulary.objects.exists()
    learn(partition, -1, "<a/>", rev=3)
    learn(partition, 4, "<b/>", rev=5)
    assert stored() == (3, {"a"})
    learn(partition, 1, "<c/>", rev=5)
    assert stored() == (5, {"a", "c"})


def test_what_comes_late_changes_nothing(partition: Partition) -> None:
    learn(partition, -1, "<a/>", rev=5)
    learn(partition, -1, "<b/>", rev=4)
    learn(partition, 3, "<c/>", rev=4)
    learn(partition, 3, "<c/>", rev=5)
    assert stored() == (5, {"a"})


def test_learnt_anew_it_forgets_what_has_vanished(partition: Partition) -> None:
    learn(partition, -1, "<a/>", rev=4)
    learn(partition, -1, "<b/>", rev=5)
    assert stored() == (5, {"b"})


def zipped(data: bytes) -> str:
    return base64.b64encode(zstandard.compress(data)).decode()


def changed(old: bytes, new: bytes) -> str:
    """A vocabulary with something else in it."""
    dumped = words("<a/>").dump()
    assert old in dumped
    return zipped(dumped.replace(old, new))


def filtered(data: bytes) -> str:
    """A vocabulary with this for a filter."""
    return changed(b'"kept":{"":1}', b'"filter":"' + base64.b64encode(data) + b'"')


UNREADABLE = {
    "no base64": "no base64",
    "no zstd": base64.b64encode(b"no zstd").decode(),
    "no JSON": zipped(b"no json"),
    "no object": zipped(b"[1]"),
    "no fields": zipped(b'{"version":1}'),
    "another version": zipped(b'{"version":99}'),
    "another field": changed(b'"kept"', b'"x"'),
    "an array for an object": changed(b'"attributes":{}', b'"attributes":[]'),
    "names that do not sort": changed(b'"children":[]', b'"children":[["a",false],[1,false]]'),
    "too many documents": changed(b'"documents":1', b'"documents":9999999999'),
    "fewer than no documents": changed(b'"documents":1', b'"documents":-1'),
    "a size that nobody has memory for": base64.b64encode(
        b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00"
    ).decode(),
    "a size above the limit": zipped(b" " * (vocabularies.MAX_BYTES + 1)),
    "no zlib": filtered(b"no zlib"),
    "a filter without an end": filtered(zlib.compress(b"x" * 32_768)[:-6]),
    "a filter above the limit": filtered(zlib.compress(b"x" * 32_769)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_left_out(partition: Partition, name: str) -> None:
    learn_parts(partition, partition.rev, -1, [UNREADABLE[name]])
    assert not models.Vocabulary.objects.exists()


def test_a_filter_of_the_right_size_is_read(partition: Partition) -> None:
    part = filtered(zlib.compress(b"x" * 32_768))
    learn_parts(partition, partition.rev, -1, [part])
    assert stored() == (partition.rev, {"a"})


def test_the_parts_of_a_completion_are_bounded_in_number_and_in_sum(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = packed(words("<a/>"))
    size = len(words("<a/>").dump())
    monkeypatch.setattr(vocabularies, "MAX_PARTS", 3)
    monkeypatch.setattr(vocabularies, "MAX_SUM_BYTES", 10 * size)
    learn_parts(partition, partition.rev, -1, [part] * 4)
    assert not models.Vocabulary.objects.exists()
    monkeypatch.setattr(vocabularies, "MAX_PARTS", 30)
    learn_parts(partition, partition.rev, -1, [part] * 11)
    assert not models.Vocabulary.objects.exists()
    learn_parts(partition, partition.rev, -1, [part] * 10)
    assert stored() == (partition.rev, {"a"})
    # One budget is for all partitions of a completion.
    budget = vocabularies.Budget()
    assert vocabularies.read(partition.id, partition.rev + 1, -1, [part] * 6, budget)
    assert vocabularies.read(partition.id, partition.rev + 1, -1, [part] * 6, budget) is None


def test_a_part_with_more_than_can_be_kept_is_left_out(partition: Partition) -> None:
    large = words("<a/>")
    children = large.elements[State("a", False)].children
    children |= {State(f"b{number}", False) for number in range(MAX_KEPT)}
    learn_parts(partition, partition.rev, -1, [packed(large)])
    assert not models.Vocabulary.objects.exists()


def test_what_was_read_before_another_completion_is_not_stored_over_it(
    partition: Partition,
) -> None:
    learn(partition, -1, "<a/>", rev=3)
    budget = vocabularies.Budget()
    late = vocabularies.read(partition.id, 4, 3, [packed(words("<b/>"))], budget)
    assert late is not None
    learn(partition, 3, "<c/>", rev=4)
    vocabularies.learn(late)
    assert stored() == (4, {"a", "c"})


def test_a_completion_unpacks_vocabularies_before_it_locks_anything(partition: Partition) -> None:
    worker = a_worker()
    result = PartitionResult(str(uuid.uuid4()), partition.id, partition.rev, [], [], 1, 0.1)
    result = replace(result, vocabulary=[packed(words("<a/>"))], vocabulary_base=-1)
    with CaptureQueriesContext(connection) as queries:
        complete(worker, result)
    assert stored() == (partition.rev, {"a"})
    statements = [query["sql"] for query in queries]
    locks = [at for at, text in enumerate(statements) if "FOR NO KEY UPDATE" in text]
    reads = [at for at, text in enumerate(statements) if '"data" FROM "vocabulary"' in text]
    # The one under the lock is that of the row to replace.
    assert reads[0] < locks[0]
    assert ["FOR UPDATE" in statements[at] for at in reads] == [False, True]


def test_what_declares_too_much_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is refused by its header alone, so that a token cannot make the server allocate it."""
    bomb = zstandard.compress(b" " * 1000)
    monkeypatch.delattr(zstandard, "ZstdDecompressor")
    with pytest.raises(zstd.TooLarge, match="1000 bytes; 999"):
        zstd.unpack(bomb, 999)


def test_learning_waits_until_there_is_nothing_else(partition: Partition) -> None:
    assert leases.learn() == 1
    tags.create("gpu", definition="//node")
    worker = a_worker()
    (lease,) = leases.grant(worker, 1, []).answer.leases
    assert (len(lease.expressions), lease.vocabulary_rev) == (1, None)
    evaluated = result(lease, {lease.expressions[0].expression: set()})
    completions.complete(worker, Completion(str(worker.uuid), str(worker.incarnation), [evaluated]))
    assert leases.grant(worker, 1, []).answer.leases == []
    assert leases.learn() == 1
    (lease,) = leases.grant(worker, 1, []).answer.leases
    assert (lease.expressions, lease.vocabulary_rev) == ([], -1)


def test_a_partition_is_not_left_to_learn_twice(partition: Partition) -> None:
    assert (leases.learn(), leases.learn()) == (1, 0)
    assert len(leases.grant(a_worker(), 1, []).answer.leases) == 1
    assert leases.learn() == 0


def test_a_completion_brings_it(partition: Partition) -> None:
    leases.learn()
    worker = a_worker()
    (lease,) = leases.grant(worker, 1, []).answer.leases
    assert lease.vocabulary_rev == -1
    part = [packed(words("<a/>"))]
    said = replace(result(lease, {}), vocabulary=part, vocabulary_base=-1)
    completions.complete(worker, Completion(str(worker.uuid), str(worker.incarnation), [said]))
    assert stored() == (lease.rev, {"a"})
    assert leases.learn() == 0


def test_it_goes_with_its_partition(partition: Partition) -> None:
    learn(partition, -1, "<a/>")
    for name in ("a", "b"):
        ingest.delete(name)
    delete_cluster(Cluster.objects.get())
    assert not models.Vocabulary.objects.exists()


# -- the fleet's -----------------------------------------------------------------------------------


def test_the_fleets_is_that_of_all_partitions(partition: Partition) -> None:
    clusters.create("south")
    put("c", cluster="south")
    other = Partition.objects.exclude(id=partition.id).get()
    learn(partition, -1, "<a/>")
    assert vocabularies.fleet().vocabulary is None
    learn(other, -1, "<b/>")
    assert names(vocabularies.fleet().vocabulary) == {"a", "b"}
    put("c", xml=b"<list/>")
    assert vocabularies.fleet().behind == 1
    other.refresh_from_db()
    learn(other, other.rev - 1, "<c/>")
    found = vocabularies.fleet()
    assert (names(found.vocabulary), found.behind) == ({"a", "b", "c"}, 0)
    put("c", xml=GPU)
    other.refresh_from_db()
    learn(other, -1, "<d/>")
    assert names(vocabularies.fleet().vocabulary) == {"a", "d"}


def test_a_fleet_without_nodes_knows_nothing() -> None:
    clusters.create("north")
    assert vocabularies.fleet().vocabulary is None


def many(count: int) -> list[Partition]:
    cluster = clusters.create("north")
    return Partition.objects.bulk_create(
        Partition(cluster=cluster, number=number, capacity=8, rev=1, node_count=8)
        for number in range(count)
    )


def test_of_many_partitions_only_those_that_changed_are_merged_again() -> None:
    made = many(20)
    for number, partition in enumerate(made):
        learn(partition, -1, f"<a{number}/>")
    assert len(names(vocabularies.fleet().vocabulary)) == 20
    learn(made[3], 1, "<b/>", rev=2)
    with CaptureQueriesContext(connection) as queries:
        found = vocabularies.fleet().vocabulary
    assert len(names(found)) == 21
    assert found is not None and found.documents == 22
    assert "IN (" in queries.captured_queries[-1]["sql"]
    # What goes away is noticed as well.
    models.Vocabulary.objects.filter(partition=made[4]).delete()
    Partition.objects.filter(id=made[4].id).delete()
    found = vocabularies.fleet().vocabulary
    assert (len(names(found)), found is not None and found.documents) == (20, 20)


def test_a_request_costs_one_query_while_nothing_changes() -> None:
    made = many(100)
    node = Vocabulary.of(documents.compose(item.probes) for item in generate(20, 3, "lean"))
    for partition in made:
        learn_parts(partition, 1, -1, [packed(node)])
    first = vocabularies.fleet().vocabulary
    with CaptureQueriesContext(connection) as queries:
        started = time.perf_counter()
        for _ in range(10):
            assert vocabularies.fleet().vocabulary is first
        assert (time.perf_counter() - started) / 10 < 0.05
    assert len(queries) == 10
    assert first is not None
    assert first.elements[State("node", True)].documents == 2000
