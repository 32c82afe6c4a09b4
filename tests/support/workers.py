"""A worker without HTTP: it leases, evaluates with lxml, and completes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection
from lxml import etree
from msgspec import UNSET

from tagmill.fleet import batches
from tagmill.fleet.models import Cluster
from tagmill.flows import completions
from tagmill.matches import expression_sets
from tagmill.tags import tags
from tagmill.work import leases, workers
from tagmill.work.models import Worker
from tagmill_wire import bitmap
from tagmill_wire.messages import (
    BatchNode,
    Completion,
    CompletionAnswer,
    Failure,
    LeaseAnswer,
    LeasedPartition,
    MatchResult,
    PartitionResult,
    Register,
)
from tagmill_worker.evaluators.passes import PageAnswer
from tagmill_worker.job import plan
from tagmill_worker.pages import Page
from tagmill_worker.sets import DefinedSet, defined
from tests.support.fleet import HAS_GPU


def a_worker(*clusters: Cluster, name: str = "w") -> Worker:
    """A worker with a new token for these clusters; without any, for all."""
    token, _ = workers.issue_token(name, list(clusters) or "all")
    return workers.register(token, Register(name, "lxml", "1"))


def pages(partition: int, since: int | None = None) -> tuple[int, list[BatchNode]]:
    """The whole partition as one page, and the rev that it claims."""
    batch = batches.read(partition, since, None, 65_536, 1 << 30)
    return batch.rev, batch.nodes


def slots_of(text: str, nodes: Iterable[BatchNode]) -> set[int]:
    return {
        item.slot
        for item in nodes
        if item.probes and etree.fromstring(item.probes["lshw"].encode()).xpath(f"boolean({text})")
    }


def result(
    lease: LeasedPartition, members: dict[int, set[int]], rev: int | None = None, **fields: Any
) -> PartitionResult:
    """A full result for each expression."""
    return PartitionResult(
        lease=lease.lease,
        partition=lease.partition,
        rev=lease.rev if rev is None else rev,
        matches=[
            MatchResult(expression, bitmap.encode(bitmap.from_slots(slots), lease.capacity))
            for expression, slots in members.items()
        ],
        failures=fields.get("failures", []),
        documents=1,
        seconds=0.001,
    )


def evaluated(answer: LeaseAnswer, lease: LeasedPartition) -> PartitionResult:
    """What an honest worker says of a lease."""
    rev, nodes = pages(lease.partition)
    members = {
        item.expression: slots_of(answer.expressions[str(item.expression)].text, nodes)
        for item in lease.expressions
    }
    return result(lease, members, rev)


def set_of(answer: LeaseAnswer) -> DefinedSet | None:
    if answer.set is UNSET:
        return None
    return defined(answer.set, expression_sets.definitions(answer.set))


def said(answer: LeaseAnswer, lease: LeasedPartition, *, by_set: bool = True) -> PartitionResult:
    """What a worker that holds nothing says of a lease: its own words, and lxml's verdicts."""
    assert answer.incarnation is not None
    job = plan(lease, answer.expressions, None, answer.incarnation, set_of(answer))
    rev, nodes = pages(lease.partition, job.since)
    job.pages.append(Page(lease.partition, rev, None, is_empty=False, data=b""))
    members = {
        key: bitmap.from_slots(slots_of(item.text, nodes))
        for key, item in job.pass_.expressions.items()
    }
    slots = bitmap.from_slots(node.slot for node in nodes)
    job.fetched(PageAnswer(slots, members, len(nodes), 0.01))
    return job.result(by_set=by_set)


def complete(worker: Worker, *results: PartitionResult) -> CompletionAnswer:
    named = str(worker.incarnation)
    return completions.complete(worker, Completion(str(worker.uuid), named, list(results)))


def work(worker: Worker) -> int:
    """Do all the work there is; how many matches were applied."""
    applied = 0
    while (answer := leases.grant(worker, 64, []).answer).leases:
        done = complete(worker, *(evaluated(answer, lease) for lease in answer.leases))
        applied += sum(item.applied for item in done.results)
    return applied


def gpu_published() -> Worker:
    """The tag gpu, published, and the worker that evaluated it."""
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    work(worker)
    return worker


def lease_one(worker: Worker) -> tuple[LeaseAnswer, LeasedPartition]:
    answer = leases.grant(worker, 1, []).answer
    (lease,) = answer.leases
    return answer, lease


def fail(worker: Worker, reason: str = "too slow") -> None:
    """Lease one partition and report every expression of it failed."""
    _, lease = lease_one(worker)
    failures = [Failure(item.expression, reason) for item in lease.expressions]
    complete(worker, result(lease, {}, failures=failures))


def jobs(status: str | None = None) -> list[tuple[int, str]]:
    """(partition, status) of the evaluation jobs."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (args->>'partition')::bigint, status::text FROM procrastinate_jobs "
            "WHERE task_name = 'evaluate_partition' AND (%s::text IS NULL OR status::text = %s) "
            "ORDER BY id",
            [status, status],
        )
        return [(int(row[0]), str(row[1])) for row in cursor.fetchall()]
