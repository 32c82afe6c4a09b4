"""What is measured without a rebuild: bytes at rest, on the wire and in an image, and what a lease
spends on each partition that waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from django.db import connection, transaction

from fixtures.generate import ProfileName, generate
from tagmill import config
from tagmill.fleet.models import Cluster, Partition
from tagmill.work import queue
from tagmill_wire import bitmap, messages
from tagmill_worker.evaluators import base

# The candidates of a lease: large enough that a scan shows, and taken away again.
WAITING = (250, 2_000)
LOOKS = 9


def loaded_nodes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(node_count) FROM partition")
        return int(cursor.fetchone()[0])


def image_bytes(profile: ProfileName, seed: int) -> float:
    """Bytes of the kernel's image for one node of a partition."""
    slots = config.load().partition_slots
    image = base.load("kernel").image(list)
    for slot, node in enumerate(generate(slots, seed, profile)):
        image.put(slot, node.probes)
    return float(image.nbytes) / slots


def candidate_seconds() -> dict[str, float]:
    """CPU seconds that a lease spends on each waiting partition, by API and database."""
    api, database = [], []
    for count in WAITING:
        with transaction.atomic():
            _make_waiting(count)
            for spent, waited in [_look() for _ in range(LOOKS)][1:]:
                api.append((count, spent))
                database.append((count, waited))
            transaction.set_rollback(True)
    return {"api": _slope(api), "database": _slope(database)}


def _make_waiting(count: int) -> None:
    cluster = Cluster.objects.create(name="waiting")
    made = Partition.objects.bulk_create(
        Partition(cluster=cluster, number=n, rev=1, capacity=8, next_slot=0, node_count=0)
        for n in range(count)
    )
    queue.defer_partitions(item.pk for item in made)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE procrastinate_jobs, partition")


def _look() -> tuple[float, float]:
    """Seconds of this process, and of the database as the time that this one waits."""
    cpu, wall = time.process_time(), time.perf_counter()
    queue.candidates(None, ())
    spent = time.process_time() - cpu
    return spent, max(0.0, time.perf_counter() - wall - spent)


def _slope(points: Sequence[tuple[int, float]]) -> float:
    medians = [
        statistics.median(seconds for count, seconds in points if count == size) for size in WAITING
    ]
    return max(0.0, (medians[1] - medians[0]) / (WAITING[1] - WAITING[0]))


def wire_bytes(slots: int, texts: Sequence[str]) -> dict[str, float]:
    """Bytes of JSON that a partition and a match add to a lease and its completion."""
    uuid = "0" * 36
    lease = messages.LeasedPartition(uuid, 10**6, uuid, 10**4, slots, [])
    result = messages.PartitionResult(uuid, 10**6, 10**4, [], [], 1000, 0.123)
    stale, match = (
        messages.StaleExpression(10**4, 10**4),
        messages.MatchResult(10**4, bitmap.encode(0, slots)),
    )
    definition = messages.Definition("x" * round(statistics.fmean(map(len, texts))), {})
    return {
        "wire_partition": len(messages.dump(lease)) + len(messages.dump(result)),
        "wire_match": sum(len(messages.dump(item)) for item in (stale, match, definition)),
    }


def node_bytes() -> float:
    """Bytes at rest of one node."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM node, document")
        cursor.execute(
            "SELECT (pg_total_relation_size('node') + pg_total_relation_size('document'))::float"
            " / (SELECT count(*) FROM node)"
        )
        return float(cursor.fetchone()[0])


def match_bytes() -> float:
    """Bytes at rest of one match."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM match, match_change")
        cursor.execute(
            "SELECT pg_total_relation_size('match')::float / (SELECT count(*) FROM match)"
            " + pg_total_relation_size('match_change')::float"
            " / greatest(1, (SELECT count(*) FROM match_change))"
        )
        return float(cursor.fetchone()[0])
