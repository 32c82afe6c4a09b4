"""A node that moves to another cluster takes its tags along, also the automatic ones."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from msgspec.structs import replace

from tagmill.fleet.models import Cluster
from tagmill.flows import ingest
from tagmill.matches.models import Match, MatchChange
from tagmill.tags import freshness, previews, rebuilds, tags
from tagmill.tags.models import NodeTag
from tagmill.work import leases
from tagmill_wire import bitmap
from tagmill_wire.messages import MatchResult
from tests.support.fleet import ANY, BARE, HAS_GPU, carriers, node, put, tag
from tests.support.workers import a_worker, complete, result, work

pytestmark = pytest.mark.django_db


def test_a_moved_node_keeps_its_automatic_tags_while_its_new_place_is_evaluated(
    north: Cluster, south: Cluster
) -> None:
    worker = a_worker()
    put("n1", "n2", cluster="north")
    put("bare", cluster="north", xml=BARE)
    tags.create("gpu", definition=HAS_GPU)
    tags.create("any", definition=ANY)
    tags.create("pending", definition=HAS_GPU)
    work(worker)
    tags.update("pending", definition="//node[@class='nothing']")
    # Into a new partition, which nobody has evaluated: no match is there, and none is complete.
    put("n1", cluster="south")
    put("bare", cluster="south", xml=BARE)
    assert carriers("gpu") == {"n1", "n2"}
    assert carriers("any") == {"n1", "n2", "bare"}
    assert carriers("pending") == {"n1", "n2"}
    assert state("gpu") == ("building", 2)
    assert tags_of("n1") == ["any", "gpu", "pending"]
    # What moved in is no evaluation: nothing is published for it.
    assert tags.create("late", definition=HAS_GPU).expression is None
    work(worker)
    assert (carriers("gpu"), state("gpu")) == ({"n1", "n2"}, ("ready", 2))
    assert carriers("pending") == set()
    # Into a partition that is evaluated; a delta then says what its new documents say.
    put("n2", cluster="south", xml=BARE)
    assert (carriers("gpu"), state("gpu")) == ({"n1", "n2"}, ("building", 2))
    place = node("n2")
    there = a_worker(south, name="there")
    (lease,) = leases.grant(there, 8, []).answer.leases
    delta = [
        MatchResult(
            item.expression,
            bitmap.encode(0, lease.capacity),
            item.base_rev,
            bitmap.encode(1 << place.slot, lease.capacity),
        )
        for item in lease.expressions
    ]
    assert all(item.base_rev is not None for item in delta)
    complete(there, replace(result(lease, {}), matches=delta))
    assert carriers("gpu") == {"n1"}
    assert trail_adds_up()


def test_a_moved_node_that_is_deleted_before_it_is_evaluated_leaves_its_tags(
    north: Cluster, south: Cluster
) -> None:
    put("n1", "n2", cluster="north")
    put("s1", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    rebuilds.request(["gpu"], None)
    put("n1", "n2", cluster="south")
    assert (carriers("gpu"), state("gpu")) == ({"n1", "n2", "s1"}, ("building", 3))
    ingest.delete("n1")
    assert (carriers("gpu"), state("gpu")) == ({"n2", "s1"}, ("building", 2))
    preview = previews.start(HAS_GPU, {}, User.objects.create_user("ann"), "c", "gpu")
    counts = previews.Membership(preview).counts()
    assert (counts.nodes, counts.added, counts.removed) == (2, 0, 0)
    assert trail_adds_up()


def state(name: str) -> tuple[str, int]:
    found = freshness.status([tag(name)])[tag(name).id]
    return found.state, found.node_count


def tags_of(name: str) -> list[str]:
    found = NodeTag.objects.filter(node=node(name)).order_by("tag__name")
    return list(found.values_list("tag__name", flat=True))


def trail_adds_up() -> bool:
    """Whether the audit trail, replayed, gives the stored bitmaps."""
    bits: dict[tuple[int, int], int] = {}
    for change in MatchChange.objects.order_by("id"):
        key = change.expression_id, change.partition_id
        added, removed = bitmap.from_bytes(change.added), bitmap.from_bytes(change.removed)
        assert not bits.get(key, 0) & added and bits.get(key, 0) & removed == removed
        bits[key] = (bits.get(key, 0) | added) & ~removed
    stored = {
        (match.expression_id, match.partition_id): bitmap.from_bytes(match.members)
        for match in Match.objects.all()
    }
    return {key: value for key, value in bits.items() if value} == {
        key: value for key, value in stored.items() if value
    }
