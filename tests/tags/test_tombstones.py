"""Counts, previews and lists where deleted nodes still have their bits: against asking each."""

from __future__ import annotations

import random

import pytest
from django.contrib.auth.models import User

from tagmill.fleet import clusters
from tagmill.fleet.models import Node, Partition
from tagmill.matches.models import Expression
from tagmill.tags import freshness, places, previews
from tagmill.tags.models import Assignment, NodeTag, Tag
from tagmill_wire import bitmap
from tests.support.sql import execute

pytestmark = pytest.mark.django_db

PARTITIONS = 6
SLOTS = 64
EXPRESSIONS = 8
REV = 20


def fill(chance: random.Random) -> None:
    """Nodes and matches at any revs. A match may have bits of nodes that were deleted after what it
    is true at, and of no others; some are in a forced rebuild, some missing, some short."""
    cluster = clusters.create("north").id
    for number in range(PARTITIONS):
        ((partition,),) = execute(
            "INSERT INTO partition (cluster_id, number, rev, capacity, next_slot, node_count) "
            "VALUES (%s, %s, %s, %s, %s, 0) RETURNING id",
            [cluster, number + 1, REV, SLOTS, SLOTS],
        )
        deleted: dict[int, int] = {}
        for slot in range(SLOTS):
            rev = chance.randint(1, REV)
            if chance.random() < 0.3:
                deleted[slot] = rev
            execute(
                "INSERT INTO node (system_id, partition_id, slot, rev, deleted_at) "
                "VALUES (%s, %s, %s, %s, CASE WHEN %s THEN now() END)",
                [f"n{partition}-{slot}", partition, slot, rev, slot in deleted],
            )
        for expression in Expression.objects.order_by("id"):
            _match(chance, expression.id, partition, deleted)


def _match(chance: random.Random, expression: int, partition: int, deleted: dict[int, int]) -> None:
    if chance.random() < 0.1:
        return
    true_at = chance.choice([0, 5, 12, REV - 1, REV, REV])
    capacity = chance.choice([SLOTS, SLOTS, 16])
    slots = [
        slot
        for slot in range(capacity)
        if chance.random() < 0.5 and deleted.get(slot, REV + 1) > true_at
    ]
    members = bitmap.to_bytes(bitmap.from_slots(slots), capacity)
    is_forced = chance.random() < 0.4
    revs = (-1, true_at) if is_forced else (true_at, None)
    execute(
        "INSERT INTO match (expression_id, partition_id, rev, kept_rev, members) "
        "VALUES (%s, %s, %s, %s, %s)",
        [expression, partition, *revs, members],
    )


LIVE = """
SELECT count(*)
FROM match m
JOIN node n ON n.partition_id = m.partition_id AND n.deleted_at IS NULL
           AND CASE WHEN n.slot < 8 * octet_length(m.members)
                    THEN get_bit(m.members, n.slot) = 1 ELSE false END
WHERE m.expression_id = %s AND (%s::bigint IS NULL OR EXISTS (
    SELECT FROM match other WHERE other.partition_id = m.partition_id AND other.expression_id = %s
))
"""


def live(expression: int, evaluated_by: int | None = None) -> int:
    """Live nodes with a bit; in partitions alone where the other expression given was evaluated."""
    return int(execute(LIVE, [expression, evaluated_by, evaluated_by])[0][0])


@pytest.mark.parametrize("seed", range(8))
def test_bits_of_deleted_nodes_are_taken_off_also_during_a_forced_rebuild(seed: int) -> None:
    chance = random.Random(seed)
    for number in range(EXPRESSIONS):
        expression = Expression.objects.create(text=f"//a{number}", digest=bytes([number]))
        Tag.objects.create(name=f"t{number}", expression=expression)
    fill(chance)
    every = list(Tag.objects.all())
    found = freshness.status(every)
    assert execute("SELECT 1 FROM match WHERE rev = -1")
    for tag in every:
        assert tag.expression_id is not None
        assert found[tag.id].node_count == live(tag.expression_id), tag.name
        fresh = len(
            execute(
                "SELECT 1 FROM match WHERE expression_id = %s AND rev = %s",
                [tag.expression_id, REV],
            )
        )
        assert found[tag.id].pending == PARTITIONS - fresh
        assert freshness.status([tag]) == {tag.id: found[tag.id]}


@pytest.mark.parametrize("seed", range(8))
def test_a_preview_counts_no_deleted_node_also_during_a_forced_rebuild(seed: int) -> None:
    chance = random.Random(seed)
    for number in range(2):
        expression = Expression.objects.create(text=f"//a{number}", digest=bytes([number]))
        Tag.objects.create(name=f"t{number}", expression=expression)
    fill(chance)
    ann = User.objects.create_user("ann")
    new, old = Tag.objects.order_by("name")
    preview = previews.Preview(
        requested_by=ann, client="c", expression_id=new.expression_id, compare_to_id=old.id
    )
    counts = previews.Membership(preview).counts()
    assert new.expression_id is not None and old.expression_id is not None
    assert counts.nodes == live(new.expression_id)
    before = counts.nodes - counts.added + counts.removed
    assert before == live(old.expression_id, evaluated_by=new.expression_id)


@pytest.mark.parametrize("seed", range(2))
def test_pages_of_nodes_are_those_that_the_view_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(places, "MAX_PARTITIONS", 2)
    monkeypatch.setattr(places, "MAX_PLACES", 16)
    for number in range(4):
        expression = Expression.objects.create(text=f"//a{number}", digest=bytes([number]))
        Tag.objects.create(name=f"t{number}", expression=expression)
    fill(chance)
    mine = Tag.objects.create(name="mine", pending_expression=expression)
    for partition in Partition.objects.all()[:3]:
        members = bitmap.to_bytes(chance.getrandbits(SLOTS), SLOTS)
        Assignment.objects.create(tag=mine, partition=partition, members=members)
    south = clusters.create("south")
    Partition.objects.filter(number__gt=3).update(cluster=south)
    every = list(Tag.objects.values_list("id", flat=True))
    Node.objects.filter(slot__lt=9).update(hostname="same")
    for _ in range(12):
        with_tags = chance.sample(every, chance.choice([0, 1, 1, 2]))
        without = chance.sample(every, chance.choice([0, 0, 1, 2]))
        cluster = chance.choice([None, None, [south.id]])
        hostname = chance.choice([None, None, "same"])
        filters = places.Filters(with_tags, without, cluster, hostname)
        wanted = Node.objects.filter(deleted_at=None).order_by("partition_id", "slot")
        for tag in with_tags:
            wanted = wanted.filter(id__in=NodeTag.objects.filter(tag=tag).values("node"))
        for tag in without:
            wanted = wanted.exclude(id__in=NodeTag.objects.filter(tag=tag).values("node"))
        if cluster is not None:
            wanted = wanted.filter(partition__cluster__in=cluster)
        if hostname is not None:
            wanted = wanted.filter(hostname=hostname)
        found: list[str] = []
        after, limit = -1, chance.choice([7, 100])
        while page := places.matching(filters, after, limit):
            assert len(page) <= limit
            found += [node.system_id for node in page]
            after = page[-1].key
        assert found == list(wanted.values_list("system_id", flat=True)), filters
