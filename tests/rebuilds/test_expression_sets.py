"""Leases and completions that name an expression set, whatever becomes of it meanwhile."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from msgspec import UNSET
from msgspec.structs import replace

from tagmill.errors import Invalid, TagmillError, UnknownExpressionSet
from tagmill.fleet.models import Partition
from tagmill.flows import answers, maintenance
from tagmill.matches import expression_sets, staleness
from tagmill.matches.models import Expression, ExpressionSet, Match
from tagmill.tags import previews, rebuilds, tags
from tagmill.tags.models import Tag
from tagmill.work import leases
from tagmill.work.models import Worker
from tagmill_wire import bitmap
from tagmill_wire.messages import (
    Completion,
    LeaseAnswer,
    LeasedPartition,
    MatchResult,
    OfSet,
    PartitionResult,
    SlotVerdicts,
    dump,
)
from tests.support.fleet import ANY, BARE, GPU, HAS_GPU, carriers, north, put, the_partition
from tests.support.sql import execute
from tests.support.workers import a_worker, complete, said, work

pytestmark = pytest.mark.django_db

NONE = "//nothing"
TWIN = "//node[@id]"
DEFINITIONS = {"gpu": HAS_GPU, "any": ANY, "none": NONE}


@pytest.fixture
def worker(db: None, configure: Callable[..., None]) -> Worker:
    """Three tags that are fresh on sixteen nodes; changes are left to workers."""
    configure(partition_slots=8, settle_seconds=0)
    north(*(f"n{number}" for number in range(16)))
    for name, definition in DEFINITIONS.items():
        tags.create(name, definition=definition)
    found = a_worker()
    work(found)
    return found


def leased(worker: Worker, most: int = 8) -> LeaseAnswer:
    return leases.grant(worker, most, [], by_set=True).answer


def all_said(worker: Worker) -> list[PartitionResult]:
    """What there is to do in both partitions."""
    found = []
    while (answer := leased(worker)).leases:
        found += [said(answer, lease) for lease in answer.leases]
    return found


def change(*names: str, xml: bytes = BARE) -> None:
    put(*names, xml=xml)


def everything_is_true(*bare: str) -> None:
    """Where these nodes, or n1, have no GPU."""
    work(a_worker(name="last"))
    assert staleness.stale_partitions() == []
    every = {f"n{number}" for number in range(16)}
    for tag in Tag.objects.select_related("expression"):
        assert tag.expression is not None
        having = every - set(bare or ["n1"])
        expected = {HAS_GPU: having, ANY: every, TWIN: every, NONE: set()}[tag.expression.text]
        assert carriers(tag.name) == expected, tag.name


def test_a_change_is_leased_and_answered_by_set(worker: Worker) -> None:
    change("n1")
    answer = leased(worker)
    (lease,) = answer.leases
    assert (lease.expressions, answer.expressions) == ([], {})
    assert lease.of_set == [OfSet(lease.rev - 1, None)]
    result = said(answer, lease)
    assert (result.matches, result.set, result.empty) == ([], answer.set, UNSET)
    (outcome,) = complete(worker, result).results
    assert (outcome.outcome, outcome.applied, outcome.stale) == ("applied", 3, 0)
    assert not Match.objects.exclude(rev=None).exists()
    everything_is_true()


def test_a_whole_partition_names_what_has_members_and_one_bitmap_for_the_rest(
    worker: Worker,
) -> None:
    rebuilds.request(list(DEFINITIONS), None)
    results = all_said(worker)
    assert [len(result.matches) for result in results] == [2, 2]
    assert {type(result.empty) for result in results} == {str}
    outcomes = complete(worker, *results).results
    assert [(item.outcome, item.applied) for item in outcomes] == [("applied", 3)] * 2
    change("n3")
    everything_is_true("n3")


def test_who_does_not_ask_for_sets_is_answered_as_before(worker: Worker) -> None:
    change("n1")
    answer = leases.grant(worker, 8, []).answer
    (lease,) = answer.leases
    assert (len(lease.expressions), len(answer.expressions)) == (3, 3)
    for body in (dump(answer), dump(said(answer, lease))):
        assert not any(name in body for name in (b'set":', b'changed":', b'empty":'))
    assert not ExpressionSet.objects.exists()


def test_a_preview_makes_no_version_and_brings_its_definition(
    worker: Worker, django_user_model: Any
) -> None:
    before = expression_sets.current().version
    previews.start("//new", {}, django_user_model.objects.create(username="ann"), "c", None)
    assert expression_sets.current().version == before
    answer = leased(worker)
    assert answer.set is UNSET
    assert [item.text for item in answer.expressions.values()] == ["//new"]


def test_a_few_of_many_bring_their_definitions(worker: Worker) -> None:
    for number in range(14):
        tags.create(f"t{number}", definition=f"//t{number}")
    work(worker)
    tags.create("new", definition="//new")
    answer = leased(worker)
    assert answer.set is UNSET
    assert len(answer.expressions) == 1


def a_new_tag() -> None:
    tags.create("twin", definition=TWIN)


def a_deleted_tag() -> None:
    tags.delete("any")


def another_definition() -> None:
    tags.update("any", definition=NONE)


def another_server() -> None:
    """It has never seen the set."""
    expression_sets.kept.clear()


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    "meanwhile", [a_new_tag, a_deleted_tag, another_definition, another_server, nothing]
)
def test_what_is_live_may_change_between_lease_and_completion(
    worker: Worker, meanwhile: Callable[[], None]
) -> None:
    change("n1")
    answer = leased(worker)
    (lease,) = answer.leases
    result = said(answer, lease)
    meanwhile()
    (outcome,) = complete(worker, result).results
    assert outcome.applied == 3
    everything_is_true()


def left_out(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    """A settled match without a verdict: it keeps its rev."""
    return replace(result, deltas=[OfSet(lease.rev - 1, "Aw==")])


def of_another_base(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    return replace(result, deltas=[OfSet(lease.rev - 1, "Aw=="), OfSet(lease.rev + 1, "BA==")])


def of_no_later_rev(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    return replace(result, rev=lease.rev - 1)


def of_a_base_that_is_over(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    """The verdicts between are of somebody else."""
    execute("UPDATE partition SET rev = rev + 1, settled_rev = rev")
    return replace(result, rev=lease.rev + 1)


def a_rev_of_its_own(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    """As fresh as the settled ones: it joins them."""
    execute("UPDATE match SET rev = %s WHERE members = %s", [lease.rev - 1, bytes(1)])
    return result


def an_older_rev(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    """It does not take the verdict, nor show it."""
    named = "(SELECT id FROM expression WHERE text = %s)"
    change = f"UPDATE match SET rev = 0, members = %s WHERE expression_id = {named}"
    execute(change, [bytes(1), ANY])
    return result


def a_newer_rev(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    """Somebody has stored a later result: this one changes nothing."""
    execute("UPDATE partition SET rev = rev + 1, settled_rev = rev + 1")
    return result


def a_slot_that_nobody_has(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    execute("UPDATE partition SET next_slot = 1")
    return result


def a_change_since(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    change("n2")
    return result


def as_it_is(lease: LeasedPartition, result: PartitionResult) -> PartitionResult:
    return result


def by_expression(result: PartitionResult, order: list[int]) -> PartitionResult:
    """The same without a set."""
    assert result.changed is not UNSET and result.deltas is not UNSET
    mask = bitmap.encode(bitmap.from_slots(item.slot for item in result.changed), 8)
    holds = {item.slot: bitmap.from_bytes(base64.b64decode(item.holds)) for item in result.changed}
    found = []
    for group in result.deltas:
        which = 7 if group.which is None else bitmap.from_bytes(base64.b64decode(group.which))
        for place in bitmap.slots(which):
            members = bitmap.from_slots(slot for slot, bits in holds.items() if bits >> place & 1)
            encoded = bitmap.encode(members, 8)
            found.append(MatchResult(order[place], encoded, group.base_rev, mask))
    unset = dict.fromkeys(("set", "deltas", "changed"), UNSET)
    return replace(result, matches=found, **unset)


def stored() -> tuple[Any, ...]:
    rows = "SELECT expression_id, partition_id, rev, members FROM match ORDER BY 1, 2"
    trail = "SELECT expression_id, from_rev, to_rev, added, removed FROM match_change ORDER BY id"
    revs = "SELECT id, rev, settled_rev FROM partition ORDER BY id"
    return tuple(repr(execute(query)) for query in (rows, trail, revs))


@pytest.mark.parametrize(
    "scenario",
    [
        *(as_it_is, left_out, of_another_base, a_rev_of_its_own, an_older_rev, a_newer_rev),
        *(a_slot_that_nobody_has, a_change_since, of_no_later_rev, of_a_base_that_is_over),
    ],
)
def test_verdicts_by_slot_do_what_deltas_one_by_one_do(
    worker: Worker, scenario: Callable[[LeasedPartition, PartitionResult], PartitionResult]
) -> None:
    change("n1")
    answer = leased(worker)
    (lease,) = answer.leases
    result = scenario(lease, said(answer, lease))
    order = [item.expression for item in expression_sets.definitions(str(answer.set)).expressions]
    found = []
    for sent in (result, by_expression(result, order)):
        with transaction.atomic():
            (outcome,) = complete(worker, sent).results
            found.append((outcome.applied, outcome.stale, stored()))
            transaction.set_rollback(True)
    assert found[0] == found[1]


def test_a_set_that_is_gone_is_refused_and_the_result_goes_by_expression(worker: Worker) -> None:
    change("n1")
    answer = leased(worker)
    (lease,) = answer.leases
    by_set, plain = said(answer, lease), said(answer, lease, by_set=False)
    tags.delete("none")
    ExpressionSet.objects.update(used_at="2000-01-01T00:00Z")
    maintenance.collect()
    expression_sets.kept.clear()
    with pytest.raises(UnknownExpressionSet):
        complete(worker, by_set)
    with pytest.raises(UnknownExpressionSet):
        expression_sets.definitions(str(answer.set))
    assert staleness.stale_partitions() == [lease.partition]
    (outcome,) = complete(worker, plain).results
    assert outcome.outcome == "applied"
    everything_is_true()
    # The next lease names what is there.
    change("n2", xml=GPU + b" ")
    following = leased(worker)
    assert following.set not in (UNSET, answer.set)
    expression_sets.definitions(str(following.set))


def test_a_set_without_one_of_its_definitions_is_unknown(worker: Worker) -> None:
    version = expression_sets.current().version
    tags.delete("none")
    Expression.objects.filter(text=NONE).delete()
    with pytest.raises(UnknownExpressionSet):
        expression_sets.definitions(version)


def test_the_current_set_is_kept_however_old(worker: Worker) -> None:
    version = expression_sets.current().version
    ExpressionSet.objects.update(used_at="2000-01-01T00:00Z")
    assert expression_sets.forget() == 0
    assert expression_sets.definitions(version).version == version


ALL = OfSet(1)
ZERO, TWO, BEYOND, LONG = "AA==", "Ag==", "CA==", "AAA="


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"set": "0" * 32}, None),
        ({"set": "\0"}, None),
        ({"set": UNSET}, "results[1].deltas"),
        ({"set": UNSET, "deltas": UNSET}, "results[1].changed"),
        ({"deltas": [OfSet(None)]}, "results[1].deltas[0].base_rev"),
        ({"deltas": [OfSet(1, LONG)]}, "results[1].deltas[0].which"),
        ({"deltas": [OfSet(1, BEYOND)]}, "results[1].deltas[0].which"),
        ({"deltas": [ALL, OfSet(0, TWO)]}, "results[1].deltas[1].which"),
        ({"changed": [SlotVerdicts(0, LONG)]}, "results[1].changed[0].holds"),
        ({"changed": [SlotVerdicts(0, BEYOND)]}, "results[1].changed[0].holds"),
        ({"changed": [SlotVerdicts(0, "?")]}, "results[1].changed[0].holds"),
        ({"changed": [SlotVerdicts(-1, ZERO)]}, "results[1].changed[0].slot"),
        ({"changed": [SlotVerdicts(0, ZERO)] * 2}, "results[1].changed[1].slot"),
        ({"changed": [SlotVerdicts(8, ZERO)]}, "results[1].changed"),
        ({"changed": [SlotVerdicts(1 << 62, ZERO)]}, "results[1].changed"),
        ({"deltas": [OfSet(1, ZERO)], "changed": [SlotVerdicts(0, TWO)]}, "results[1].changed[0]"),
        ({"empty": TWO}, "results[1].empty"),
        ({"empty": BEYOND}, "results[1].empty"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_applied(
    worker: Worker, wrong: dict[str, Any], field: str | None
) -> None:
    change("n1", "n9")
    results = all_said(worker)
    results[1] = replace(results[1], **wrong)
    with pytest.raises(TagmillError) as caught:
        complete(worker, *results)
    if field is None:
        assert isinstance(caught.value, UnknownExpressionSet)
    else:
        assert isinstance(caught.value, Invalid)
        assert caught.value.extra["field"].startswith(field)
    assert len(staleness.stale_partitions()) == 2


def test_results_that_name_a_set_are_bounded(worker: Worker) -> None:
    change("n1")
    answer = leased(worker)
    result = said(answer, answer.leases[0])
    with pytest.raises(Invalid, match="at most name a set"):
        complete(worker, *[result] * (answers.MAX_BY_SET + 1))


TAGS = 500


def versions() -> list[Any]:
    """Others where a match was written or locked."""
    return execute("SELECT expression_id, ctid::text, xmax::text FROM match ORDER BY 1")


def many(configure: Callable[..., None]) -> Partition:
    """A partition of 4,096 slots, on which 500 tags are settled, and then a node changes."""
    configure(partition_slots=4096, settle_seconds=0)
    north("n0", "n1")
    made = Expression.objects.bulk_create(
        Expression(text=text, digest=hashlib.sha256(text.encode()).digest())
        for text in (f"//node[@class='display'][{n} > 0]" for n in range(TAGS))
    )
    Tag.objects.bulk_create(Tag(name=f"t{item.id}", expression=item) for item in made)
    partition = the_partition()
    members = bitmap.to_bytes(3, 4096)
    Match.objects.bulk_create(
        Match(expression=item, partition=partition, members=members) for item in made
    )
    execute("UPDATE partition SET settled_rev = rev")
    change("n1")
    return the_partition()


def test_a_change_with_500_tags_is_a_few_hundred_bytes(
    db: None, configure: Callable[..., None]
) -> None:
    partition, worker = many(configure), a_worker()
    answer = leased(worker)
    (lease,) = answer.leases
    result = said(answer, lease)
    said_bytes = len(dump(Completion(str(worker.uuid), str(worker.incarnation), [result])))
    assert len(dump(answer)) < 450
    assert said_bytes < 600
    # What expressions one by one take.
    assert len(dump(said(answer, lease, by_set=False))) > 1000 * said_bytes
    (outcome,) = complete(worker, result).results
    assert (outcome.applied, outcome.stale) == (TAGS, 0)
    assert staleness.stale([partition.id]) == []
    assert Match.objects.filter(rev=None).count() == TAGS
    assert {bytes(match.members)[:1] for match in Match.objects.all()} == {b"\1"}


def test_what_a_completion_does_not_flip_is_neither_written_nor_locked(
    db: None, configure: Callable[..., None]
) -> None:
    partition, worker = many(configure), a_worker()
    for xml in (BARE, BARE.replace(b"core", b"board")):
        change("n1", xml=xml)
        answer = leased(worker)
        before = versions()
        (outcome,) = complete(worker, *(said(answer, lease) for lease in answer.leases)).results
        assert (outcome.applied, outcome.stale) == (TAGS, 0)
    assert versions() == before
    assert staleness.stale([partition.id]) == []


def test_what_is_known_to_be_live_is_not_asked_for_again(worker: Worker) -> None:
    """Where it has all that is wanted, and was stored a moment ago."""
    found = expression_sets.current()
    ids = set(found.order.ids)
    with CaptureQueriesContext(connection) as seen:
        assert expression_sets.with_all(ids, found.version) == found
        assert expression_sets.with_all(set(list(ids)[:1]), found.version) == found
    assert not seen.captured_queries
    tags.create("twin", definition=TWIN)
    current = expression_sets.current()
    assert current != found
    for version in (found.version, None, "0" * 32):
        assert expression_sets.with_all(set(current.order.ids), version) == current
    expression_sets.kept.clear()
    assert expression_sets.with_all(ids, current.version) == current


def test_what_a_change_left_waiting_has_a_job_when_its_lease_ends(worker: Worker) -> None:
    """The lease was for the change alone; the process knows what was live before."""
    change("n1")
    answer = leased(worker)
    tags.create("twin", definition=TWIN)
    execute("DELETE FROM procrastinate_jobs WHERE status = 'todo'")
    (lease,) = answer.leases
    complete(worker, said(answer, lease))
    assert [item.partition for item in leased(worker).leases] == [lease.partition]
