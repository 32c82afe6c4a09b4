"""A small fleet through the domain's own functions, a worker without HTTP, and threads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from django.db import connection, connections
from lxml import etree

from tagmill.fleet import batches
from tagmill.fleet.documents import Upload, Verdict
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.flows import completions, ingest
from tagmill.matches.models import Expression, Match
from tagmill.tags.models import NodeTag, Tag
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

GPU = b"<list><node id='core'><node class='display'/></node></list>"
BARE = b"<list><node id='core'/></list>"
HAS_GPU = "//node[@class='display']"
ANY = "//node"
# Nothing here takes a tenth of it; it only ends a test that would hang.
DEADLINE_SECONDS = 20.0


def put(*names: str, cluster: str | None = None, xml: bytes = GPU) -> list[Verdict]:
    verdicts = ingest.store([Upload(name, cluster, probes={"lshw": xml}) for name in names])
    assert [verdict.error for verdict in verdicts] == [None] * len(names)
    return verdicts


def node(name: str) -> Node:
    return Node.objects.select_related("partition").get(system_id=name, deleted_at=None)


def the_partition() -> Partition:
    return Partition.objects.get()


# -- work ------------------------------------------------------------------------------------------


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


def complete(worker: Worker, *results: PartitionResult) -> CompletionAnswer:
    named = str(worker.incarnation)
    return completions.complete(worker, Completion(str(worker.uuid), named, list(results)))


def work(worker: Worker) -> int:
    """Do all the work there is; how many matches were applied."""
    applied = 0
    while (answer := leases.lease(worker, 64, [])).leases:
        done = complete(worker, *(evaluated(answer, lease) for lease in answer.leases))
        applied += sum(item.applied for item in done.results)
    return applied


def lease_one(worker: Worker) -> tuple[LeaseAnswer, LeasedPartition]:
    answer = leases.lease(worker, 1, [])
    (lease,) = answer.leases
    return answer, lease


def fail(worker: Worker, reason: str = "too slow") -> None:
    """Lease one partition and report every expression of it failed."""
    _, lease = lease_one(worker)
    failures = [Failure(item.expression, reason) for item in lease.expressions]
    complete(worker, result(lease, {}, failures=failures))


def carriers(tag: str) -> set[str]:
    """The system_ids of a tag's nodes, by the view."""
    found = NodeTag.objects.filter(tag__name=tag)
    return set(found.values_list("node__system_id", flat=True))


def true_carriers(text: str) -> set[str]:
    """What lxml says of the documents there are, one by one."""
    found = set()
    for item in Node.objects.filter(deleted_at=None).prefetch_related("documents"):
        for document in item.documents.all():
            root = etree.fromstring(document.xml.encode())
            if document.probe == "lshw" and root.xpath(f"boolean({text})"):
                found.add(item.system_id)
    return found


def members(expression: Expression, partition: Partition) -> set[int]:
    row = Match.objects.get(expression=expression, partition=partition)
    return set(bitmap.slots(bitmap.from_bytes(row.members)))


def tag(name: str) -> Tag:
    return Tag.objects.select_related("expression", "pending_expression").get(name=name)


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


def execute(statement: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, list(parameters))
        return list(cursor.fetchall()) if cursor.description else []


# -- threads ---------------------------------------------------------------------------------------


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run it in a thread with a connection of its own, which is closed at the end."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        finally:
            connections.close_all()

    threading.Thread(target=run, daemon=True).start()
    return future


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        threading.Event().wait(0.005)


def until_blocked(count: int = 1) -> None:
    """Until so many connections to this database wait for a lock."""

    def blocked() -> int:
        # A transaction otherwise keeps its first look at pg_stat_activity.
        execute("SELECT pg_stat_clear_snapshot()")
        found = execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(found[0][0])

    until(lambda: blocked() >= count, f"{count} wait for a lock")


def done(future: Future[Any]) -> Any:
    return future.result(DEADLINE_SECONDS)


# -- plans -----------------------------------------------------------------------------------------


def plan(statement: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The root of EXPLAIN (FORMAT JSON)."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
        row = cursor.fetchone()
    found = row[0] if not isinstance(row[0], str) else json.loads(row[0])
    root: dict[str, Any] = found[0]["Plan"]
    return root


def scanned(root: dict[str, Any]) -> set[str]:
    """The tables that a plan reads from one end to the other."""
    here = {root["Relation Name"]} if root["Node Type"] == "Seq Scan" else set()
    return here.union(*(scanned(child) for child in root.get("Plans", [])))
