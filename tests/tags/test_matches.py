"""Results applied by compare-and-set, and the audit trail of what they changed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tagmill.fleet.models import Partition
from tagmill.flows import ingest
from tagmill.matches import matches, staleness
from tagmill.matches.matches import Result
from tagmill.matches.models import EffectiveMatch, Expression, Match, MatchChange
from tagmill.tags import rebuilds, tags
from tagmill_wire import bitmap
from tests.support.fleet import BARE, HAS_GPU, members, north, put, tag, the_partition

pytestmark = pytest.mark.django_db


@pytest.fixture
def partition(db: None) -> Partition:
    """A partition with nodes in slots 0 to 3, at rev 9."""
    north("a", "b", "c", "d")
    for i in range(8):
        ingest.store([ingest.Upload("a", hostname=f"h{i}")])
    return the_partition()


@pytest.fixture
def expression(partition: Partition) -> Expression:
    found = tags.create("gpu", definition=HAS_GPU).pending_expression
    assert found is not None
    return found


def bits(*slots: int) -> int:
    return bitmap.from_slots(slots)


def apply(
    expression: Expression,
    partition: Partition,
    rev: int,
    slots: tuple[int, ...],
    **delta: Any,
) -> bool:
    found = Result(expression.id, partition.id, rev, bits(*slots), **delta)
    return bool(matches.apply([found], {partition.id: partition}).of(partition.id))


def audit() -> list[tuple[int | None, int, set[int], set[int]]]:
    def slots(data: bytes) -> set[int]:
        return set(bitmap.slots(bitmap.from_bytes(data)))

    return [
        (row.from_rev, row.to_rev, slots(row.added), slots(row.removed))
        for row in MatchChange.objects.order_by("id")
    ]


def test_only_a_higher_rev_replaces_a_match(expression: Expression, partition: Partition) -> None:
    assert apply(expression, partition, 3, (0, 1))
    assert not apply(expression, partition, 2, (2,))
    assert not apply(expression, partition, 3, (2,))
    assert members(expression, partition) == {0, 1}
    assert apply(expression, partition, 4, (1, 2))
    assert members(expression, partition) == {1, 2}
    assert EffectiveMatch.objects.get().rev == 4


def test_the_audit_trail_has_a_row_for_each_change_and_for_nothing_else(
    expression: Expression, partition: Partition
) -> None:
    apply(expression, partition, 3, (0, 1))
    apply(expression, partition, 3, (0, 1))
    apply(expression, partition, 4, (0, 1))
    apply(expression, partition, 5, (1, 2))
    apply(expression, partition, 6, ())
    assert audit() == [
        (None, 3, {0, 1}, set()),
        (4, 5, {2}, {0}),
        (5, 6, set(), {1, 2}),
    ]


def test_a_first_evaluation_without_members_leaves_no_audit(
    expression: Expression, partition: Partition
) -> None:
    assert apply(expression, partition, 3, ())
    assert audit() == []
    assert EffectiveMatch.objects.get().rev == 3


def test_a_delta_changes_the_slots_it_evaluated(
    expression: Expression, partition: Partition
) -> None:
    apply(expression, partition, 3, (0, 1))
    delta = {"base_rev": 3, "evaluated": bits(1, 2)}
    assert apply(expression, partition, 5, (2, 3), **delta)
    assert members(expression, partition) == {0, 2}
    assert audit()[-1] == (3, 5, {2}, {1})
    assert not apply(expression, partition, 5, (2, 3), **delta), "repeated"
    assert members(expression, partition) == {0, 2}


@pytest.mark.parametrize("base", [2, 4, -1])
def test_a_delta_on_another_base_does_not_apply(
    expression: Expression, partition: Partition, base: int
) -> None:
    apply(expression, partition, 3, (0, 1))
    assert not apply(expression, partition, 5, (2,), base_rev=base, evaluated=bits(2))
    assert members(expression, partition) == {0, 1}


def test_a_delta_does_not_go_back_nor_make_a_match(
    expression: Expression, partition: Partition
) -> None:
    assert not apply(expression, partition, 5, (2,), base_rev=0, evaluated=bits(2))
    apply(expression, partition, 3, (0, 1))
    assert not apply(expression, partition, 3, (2,), base_rev=3, evaluated=bits(2))
    assert not apply(expression, partition, 2, (2,), base_rev=3, evaluated=bits(2))
    assert members(expression, partition) == {0, 1}


@pytest.mark.parametrize("base", [9, -1])
def test_no_delta_applies_during_a_forced_rebuild(
    expression: Expression, partition: Partition, base: int
) -> None:
    apply(expression, partition, 9, (0, 1))
    rebuilds.request(["gpu"], None)
    assert staleness.stale([partition.id])[0].base_rev is None
    assert not apply(expression, partition, 9, (2,), base_rev=base, evaluated=bits(2))
    assert members(expression, partition) == {0, 1}
    assert apply(expression, partition, 9, (0, 2))
    row = EffectiveMatch.objects.get()
    assert (row.rev, row.true_at) == (9, 9)
    assert audit()[-1] == (9, 9, {2}, {1})


def test_two_results_for_one_match_apply_in_order(
    expression: Expression, partition: Partition
) -> None:
    results = [
        Result(expression.id, partition.id, 3, bits(0)),
        Result(expression.id, partition.id, 5, bits(1), 3, bits(1)),
        Result(expression.id, partition.id, 4, bits(3)),
    ]
    matches.apply(results, {partition.id: partition})
    assert members(expression, partition) == {0, 1}
    assert audit() == [(None, 5, {0, 1}, set())]


def test_a_result_for_a_collected_expression_is_left_out(
    expression: Expression, partition: Partition
) -> None:
    unknown = Result(expression.id + 100, partition.id, 9, bits(0))
    known = Result(expression.id, partition.id, 9, bits(0))
    applied = matches.apply([unknown, known], {partition.id: partition})
    assert applied.by_partition == {partition.id: {expression.id}}


def test_equal_definitions_share_an_expression_and_its_matches(partition: Partition) -> None:
    tags.create("one", definition=HAS_GPU, namespaces={"a": "x", "b": "y"})
    tags.create("two", definition=HAS_GPU, namespaces={"b": "y", "a": "x"})
    tags.create("other", definition=HAS_GPU, namespaces={"a": "x"})
    assert tag("one").pending_expression == tag("two").pending_expression
    assert tag("one").pending_expression != tag("other").pending_expression
    assert Expression.objects.count() == 2
    (stale,) = staleness.stale([partition.id])
    assert len(stale.expressions) == 2


def test_stale_is_what_has_no_match_at_the_partitions_rev(
    expression: Expression, partition: Partition
) -> None:
    assert staleness.stale([partition.id]) == [(partition.id, [expression.id], None, False, False)]
    apply(expression, partition, 8, ())
    assert staleness.stale([partition.id]) == [(partition.id, [expression.id], 8, False, False)]
    assert staleness.stale_partitions() == [partition.id]
    apply(expression, partition, 9, ())
    assert staleness.stale([partition.id]) == [] == staleness.stale_partitions()
    put("a", xml=BARE)
    assert staleness.stale([partition.id]) == [(partition.id, [expression.id], 9, False, False)]


def test_what_nothing_names_is_not_stale_but_a_live_preview_is(
    expression: Expression, partition: Partition
) -> None:
    tags.delete("gpu")
    assert staleness.stale([partition.id]) == [] and not staleness.any_live()
    from datetime import timedelta

    from django.db.models.functions import Now

    previewed = Expression.objects.filter(id=expression.id)
    previewed.update(preview_until=Now() + timedelta(minutes=1))
    assert len(staleness.stale([partition.id])) == 1 and staleness.any_live()
    previewed.update(preview_until=Now() - timedelta(minutes=1))
    assert staleness.stale([partition.id]) == [] and not staleness.any_live()


def test_a_failed_expression_is_not_stale(expression: Expression, partition: Partition) -> None:
    from django.db.models.functions import Now

    Expression.objects.update(failed_at=Now())
    assert staleness.stale([partition.id]) == [] == staleness.stale_partitions()


# -- settled ---------------------------------------------------------------------------------------


@pytest.fixture
def three(partition: Partition) -> list[int]:
    """Three expressions whose matches are settled at the partition's rev, 9, all with slot 0."""
    found = [
        tags.create(f"t{number}", definition=f"//x{number}").pending_expression_id
        for number in range(3)
    ]
    expressions = [key for key in found if key is not None]
    full = [Result(key, partition.id, 9, bits(0)) for key in expressions]
    assert len(matches.apply(full, {partition.id: partition}).of(partition.id)) == 3
    assert own_revs() == {None}
    return expressions


def own_revs() -> set[int | None]:
    return set(Match.objects.values_list("rev", flat=True))


def versions() -> set[tuple[int, str]]:
    """Another one where a match was written."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT expression_id, ctid::text FROM match")
        return set(cursor.fetchall())


def deltas(expressions: list[int], partition: Partition, rev: int, slot: int) -> list[Result]:
    """From rev 9 on, of slot 1."""
    return [Result(key, partition.id, rev, bits(slot), 9, bits(1)) for key in expressions]


def test_deltas_of_all_that_is_settled_move_what_it_is_true_at(
    three: list[int], partition: Partition
) -> None:
    before = versions()
    found = [*deltas(three[:2], partition, 11, 2), *deltas(three[2:], partition, 11, 1)]
    matches.apply(found, {partition.id: partition})
    partition.refresh_from_db()
    assert partition.settled_rev == 11 and own_revs() == {None}
    written = {expression for expression, _ in versions() - before}
    assert written == {three[2]}, "the only one that flips"
    assert audit()[-1] == (9, 11, {1}, set())


def test_what_a_result_says_nothing_of_keeps_the_rev_that_it_is_true_at(
    three: list[int], partition: Partition
) -> None:
    matches.apply(deltas(three[:2], partition, 11, 2), {partition.id: partition})
    revs = dict(EffectiveMatch.objects.values_list("expression_id", "rev"))
    assert revs == {three[0]: 11, three[1]: 11, three[2]: 9}
    assert own_revs() == {None, 9}


def test_few_results_get_revs_of_their_own_rather_than_unsettle_many(
    three: list[int], partition: Partition
) -> None:
    matches.apply(deltas(three[:1], partition, 11, 2), {partition.id: partition})
    assert own_revs() == {None, 11}
    partition.refresh_from_db()
    assert partition.settled_rev == 9
    # The others come later, and join what is settled then.
    matches.apply(deltas(three[1:], partition, 11, 2), {partition.id: partition})
    partition.refresh_from_db()
    assert partition.settled_rev == 11 and own_revs() == {None, 11}


def test_a_full_result_settles_its_match_and_a_delta_does_not(
    three: list[int], partition: Partition
) -> None:
    matches.apply(deltas(three[:2], partition, 11, 2), {partition.id: partition})
    matches.apply(deltas(three[2:], partition, 11, 2), {partition.id: partition})
    assert own_revs() == {None, 11}
    rebuilds.request(["t2"], None)
    matches.apply([Result(three[2], partition.id, 11, bits(0))], {partition.id: partition})
    assert own_revs() == {None}


def test_a_late_delta_does_not_move_what_is_settled_back(
    three: list[int], partition: Partition
) -> None:
    matches.apply(deltas(three, partition, 12, 1), {partition.id: partition})
    late = deltas(three, partition, 11, 2)
    assert not matches.apply(late, {partition.id: partition}).by_partition
    partition.refresh_from_db()
    assert partition.settled_rev == 12
    assert members_of(three[0], partition) == {0, 1}


def members_of(expression: int, partition: Partition) -> set[int]:
    return members(Expression.objects.get(id=expression), partition)
