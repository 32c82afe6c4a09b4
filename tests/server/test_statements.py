"""What a lease, a page and a completion cost the database, in statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import UNSET

from api.server import batches, completion, lease, versioned
from api.server.batches import Question, Slice
from api.server.broker import Poll
from tagmill.fleet import clusters
from tagmill.fleet.models import Partition
from tagmill.tags import tags
from tagmill.work import workers
from tagmill_wire.messages import (
    Batch,
    Changes,
    Completion,
    CompletionAnswer,
    LeaseAnswer,
    LeaseRequest,
    NextLease,
    Register,
    dump,
    load,
)
from tests.support.fleet import ANY, GPU, HAS_GPU, put
from tests.support.workers import evaluated, said

pytestmark = pytest.mark.django_db(transaction=True)

PARTITIONS = 16
# The caller; the worker's beat under the fleet's lock; what waits; workers that share it; jobs
# begun; what is stale; leases; definitions; and the transaction's begin and commit.
LEASE = 10
# The caller; partitions locked; incarnation and expressions; matches locked; `settled_rev` moved;
# leases and jobs ended; what is still stale; whether anybody waits; begin and commit; the time of
# changes charged to their quota.
COMPLETION = 11
# Both, of one caller, whose quotas are charged with the heartbeat.
FUSED = LEASE + COMPLETION - 2
# By an expression set: what the matches are says whether anything is stale, and the incarnation,
# and what is current; so that the next lease need not ask for it in place of definitions.
COMPLETION_BY_SET = COMPLETION - 2
FUSED_BY_SET = LEASE + COMPLETION_BY_SET - 3


class Protocol:
    """A worker that calls what the endpoints call."""

    def __init__(self) -> None:
        made, self.token = workers.issue_token("w", "all")
        self.worker = workers.register(made, Register("w", "lxml", "1"))
        self.holds = list(Partition.objects.values_list("id", flat=True))

    def lease(self, most: int, *, sets: bool = False, changes: bool = False) -> LeaseAnswer:
        named = str(self.worker.uuid)
        asked = LeaseRequest(named, most, self.holds, sets=sets, changes=changes)
        return lease.take(Poll(self.token, dump(asked))).answer

    def evaluate(self, leased: LeaseAnswer, following: NextLease | None = None) -> bytes:
        """The body of the completion."""
        named = str(self.worker.incarnation)
        answer = evaluated if leased.set is UNSET else said
        results = [answer(leased, item) for item in leased.leases]
        return dump(Completion(str(self.worker.uuid), named, results, following))

    def complete(self, body: bytes) -> CompletionAnswer:
        return load(CompletionAnswer, completion.take(self.token, body).dumped)


@pytest.fixture
def protocol(no_jobs: None, configure: Callable[..., None]) -> Protocol:
    """All of it is fresh, but that every node has changed once more, which flips nothing."""
    configure(partition_slots=8)
    clusters.create("north")
    put(*(f"n{number}" for number in range(8 * PARTITIONS)))
    tags.create("gpu", definition=HAS_GPU)
    tags.create("any", definition=ANY)
    found = Protocol()
    while (answer := found.lease(64)).leases:
        found.complete(found.evaluate(answer))
    again = GPU.replace(b"core", b"main")
    put(*(f"n{number}" for number in range(8 * PARTITIONS)), xml=again)
    return found


def test_a_page_is_two_statements_and_one_that_the_worker_or_the_cache_has_is_one(
    protocol: Protocol,
) -> None:
    """A look at everything that decides, and the page."""
    part = Slice(str(protocol.worker.incarnation), 1, None, 1024, 1 << 20)
    asked = Question(protocol.token, protocol.holds[0], part, form=versioned.JSON, known=None)
    read, said = counted(lambda: batches.look(asked, lambda _: False))
    assert read.page is not None and len(load(Batch, b"".join(read.page.entry.pieces())).nodes) == 8
    assert len(said) == 2, said
    kept, said = counted(lambda: batches.look(asked, lambda name: name == read.name))
    assert (kept.page, len(said)) == (None, 1), said
    known = replace(asked, known=versioned.etag_of(read.name))
    same, said = counted(lambda: batches.look(known, lambda _: False))
    assert (same.page, len(said)) == (None, 1), said


def counted(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    with CaptureQueriesContext(connection) as found:
        result = work()
    # Django's own look at whether a connection still works is none of ours.
    return result, [item["sql"] for item in found.captured_queries if item["sql"] != "SELECT 1"]


@pytest.mark.parametrize("most", [1, PARTITIONS])
def test_a_lease_and_its_completion_are_few_statements(protocol: Protocol, most: int) -> None:
    """As many for one partition as for sixteen, where nobody waits for anything."""
    leased, asked = counted(lambda: protocol.lease(most))
    assert (len(leased.leases), len(asked)) == (most, LEASE), asked
    body = protocol.evaluate(leased)
    done, asked = counted(lambda: protocol.complete(body))
    assert [item.outcome for item in done.results] == ["applied"] * most
    assert len(asked) == COMPLETION, asked


@pytest.mark.parametrize("most", [1, PARTITIONS // 2])
def test_a_completion_brings_the_next_lease_for_less(protocol: Protocol, most: int) -> None:
    leased = protocol.lease(most)
    body = protocol.evaluate(leased, NextLease(most, protocol.holds, []))
    done, asked = counted(lambda: protocol.complete(body))
    assert done.next is not None
    assert len(done.next.leases) == most
    assert not {item.partition for item in leased.leases} & {
        item.partition for item in done.next.leases
    }
    assert len(asked) == FUSED, asked


def test_what_has_changed_in_all_partitions_is_one_statement_more(protocol: Protocol) -> None:
    """In place of two for the page of each."""
    leased, asked = counted(lambda: protocol.lease(PARTITIONS, changes=True))
    assert all(isinstance(item.changes, Changes) for item in leased.leases)
    assert (len(leased.leases), len(asked)) == (PARTITIONS, LEASE + 1), asked


@pytest.mark.parametrize("most", [1, PARTITIONS // 2])
def test_what_names_an_expression_set_is_fewer_statements(protocol: Protocol, most: int) -> None:
    """Once the set is stored. Nothing of it grows with the partitions. One node of each has
    changed: more are told by expression."""
    first, asked = counted(lambda: protocol.lease(1, sets=True))
    assert (first.expressions, len(asked)) == ({}, LEASE + 1), asked
    protocol.complete(protocol.evaluate(first))
    while (answer := protocol.lease(64, sets=True)).leases:
        protocol.complete(protocol.evaluate(answer))
    put(*(f"n{8 * number}" for number in range(PARTITIONS)), xml=GPU.replace(b"core", b"other"))
    leased, asked = counted(lambda: protocol.lease(most, sets=True))
    assert (leased.set, len(leased.leases), len(asked)) == (first.set, most, LEASE), asked
    body = protocol.evaluate(leased)
    done, asked = counted(lambda: protocol.complete(body))
    assert [item.outcome for item in done.results] == ["applied"] * most
    assert len(asked) == COMPLETION_BY_SET, asked
    leased = protocol.lease(most - 1 or 1, sets=True)
    body = protocol.evaluate(leased, NextLease(1, protocol.holds, [], None, sets=True))
    done, asked = counted(lambda: protocol.complete(body))
    assert done.next is not None and done.next.leases
    assert len(asked) == FUSED_BY_SET, asked
