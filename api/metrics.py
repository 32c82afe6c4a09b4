"""What /metrics shows. The names are public API: docs/metrics.md lists them, and a test compares.

Counters and histograms are this server's; gauges over the database are the same on every server.

A process among others (`api/server/supervisor.py`) keeps its numbers in files, which all of them
read: whichever is asked adds them up. The files are those of its slot, so that its successor goes
on counting.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from functools import partial

import structlog
from django import db
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    multiprocess,
    values,
)
from prometheus_client import exposition as prometheus
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tagmill.errors import TagmillError
from tagmill.fleet import packing
from tagmill.flows import compaction, maintenance
from tagmill.matches import staleness
from tagmill.tags import waiting
from tagmill.tags.models import Tag
from tagmill.work import leases, membership, queue
from tagmill_wire.messages import Completion, CompletionAnswer

log = structlog.get_logger("tagmill.metrics")

CONTENT_TYPE = prometheus.CONTENT_TYPE_PLAIN_0_0_4
# Several Prometheus servers scrape; the database is read once in this time.
CACHE_SECONDS = 5.0
# Routes that wait: their duration says how long there was nothing to do, or how long workers took.
WAITING_ROUTES = frozenset({"lease", "events", "export", "preview", "wait"})
# Set by the parent of several processes: where their numbers are, and whose these are.
DIRECTORY, SLOT = "PROMETHEUS_MULTIPROC_DIR", "_TAGMILL_SLOT"
# A file that has just been made is empty for a moment.
ATTEMPTS = 3
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

if SLOT in os.environ:
    values.ValueClass = values.MultiProcessValue(lambda: os.environ[SLOT])  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)


def _gauge(name: str, help_text: str) -> Gauge:
    """The sum over all processes that live."""
    return Gauge(name, help_text, registry=REGISTRY, multiprocess_mode="livesum")


REQUESTS = Counter(
    "tagmill_http_requests_total",
    "Requests answered",
    ["method", "route", "status"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "tagmill_http_request_seconds",
    "From the end of a request to that of its answer, without long-polls, event streams, exports",
    ["route"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    registry=REGISTRY,
)
PROCESSES = _gauge("tagmill_processes", "Processes of this server that answer")
RESTARTS = Counter(
    "tagmill_process_restarts_total",
    "Processes of this server that were started in the place of one that died",
    registry=REGISTRY,
)
PARKED_POLLS = _gauge("tagmill_parked_polls", "Long-polls waiting for work")
WAITING_UPLOADS = _gauge("tagmill_waiting_uploads", "Uploads that wait for those before them")
CONNECTIONS = _gauge("tagmill_connections", "Connections of clients")
REFUSED_CONNECTIONS = Counter(
    "tagmill_refused_connections_total",
    "Connections closed at once: there were too many",
    registry=REGISTRY,
)
UNREAD_BYTES = _gauge(
    "tagmill_unread_bytes", "Bytes of answers that wait for clients that read slowly, at most"
)
ABORTED_READERS = Counter(
    "tagmill_aborted_readers_total",
    "Connections closed because too much waited for clients that read slowly",
    registry=REGISTRY,
)
LOST_LOG_LINES = Counter(
    "tagmill_lost_log_lines_total",
    "Lines that the log did not take",
    registry=REGISTRY,
)
BATCH_BYTES = Histogram(
    "tagmill_batch_bytes",
    "Bytes of a batch as sent, after compression",
    buckets=tuple(4.0**power for power in range(4, 13)),
    registry=REGISTRY,
)
BODY_LOOKUPS = Counter(
    "tagmill_body_cache_lookups_total",
    "Bodies asked of the cache: hits, misses and coalesced together",
    ["keyspace"],
    registry=REGISTRY,
)
BODY_CACHE = Counter(
    "tagmill_body_cache_total",
    "Bodies asked of the cache, by outcome: hit, miss or coalesced",
    ["keyspace", "outcome"],
    registry=REGISTRY,
)
BODY_EVICTED_BYTES = Counter(
    "tagmill_body_cache_evicted_bytes_total",
    "Bytes that left the cache because there was no room",
    ["keyspace"],
    registry=REGISTRY,
)
BODY_OVERSIZE = Counter(
    "tagmill_body_cache_oversize_total",
    "Bodies that were too large to be kept",
    ["keyspace"],
    registry=REGISTRY,
)
BODY_BUILD_SECONDS = Histogram(
    "tagmill_body_build_seconds",
    "Seconds that the build of one body took",
    ["keyspace"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    registry=REGISTRY,
)
BODY_BYTES = _gauge("tagmill_body_cache_bytes", "Bytes of bodies that are kept")
CACHE_SERVERS = Counter(
    "tagmill_cache_servers_total",
    "Items of the cache servers, by outcome: hit, miss, stored, oversize, damaged or error",
    ["outcome"],
    registry=REGISTRY,
)
IMAGES = Counter(
    "tagmill_images_total",
    "Shared images asked for, hit or miss, and sent, stored or superseded by one as new",
    ["outcome"],
    registry=REGISTRY,
)
EVALUATION_SECONDS = Histogram(
    "tagmill_evaluation_seconds_per_document",
    "Seconds that a worker took for one document, averaged over each partition it completed",
    buckets=tuple(1e-6 * 4**power for power in range(0, 12)),
    registry=REGISTRY,
)
COMPLETIONS = Counter(
    "tagmill_completions_total",
    "Partitions that workers completed, by outcome: applied or late",
    ["outcome"],
    registry=REGISTRY,
)


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    method = method if method in METHODS else "other"
    REQUESTS.labels(method, route, str(status)).inc()
    if route not in WAITING_ROUTES:
        REQUEST_SECONDS.labels(route).observe(seconds)


def observe_completion(completion: Completion, answer: CompletionAnswer) -> None:
    """Call it once for each completion that was answered."""
    for result in answer.results:
        COMPLETIONS.labels(result.outcome).inc()
    for part in completion.results:
        if part.documents > 0:
            EVALUATION_SECONDS.observe(part.seconds / part.documents)


class DatabaseCollector(Collector):
    """Gauges read from the database at the scrape, on the calling thread's connection. While the
    database is down they are absent and `tagmill_database_up` is 0."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._found: list[GaugeMetricFamily] = []

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing is read when the collector is registered."""
        return [
            GaugeMetricFamily("tagmill_database_up", "Whether the database answers (1) or not (0)"),
            GaugeMetricFamily("tagmill_queue_jobs", "Jobs in the queue", labels=["status"]),
            GaugeMetricFamily("tagmill_stale_matches", "Matches that wait for evaluation"),
            GaugeMetricFamily("tagmill_lease_age_seconds", "Age of the oldest lease; 0 for none"),
            GaugeMetricFamily(
                "tagmill_cluster_stale_matches",
                "Matches of a cluster that wait for evaluation",
                labels=["cluster"],
            ),
            GaugeMetricFamily(
                "tagmill_workers", "Live workers that may answer for a cluster", labels=["cluster"]
            ),
            GaugeMetricFamily("tagmill_tags", "Tags by state", labels=["state"]),
            GaugeMetricFamily(
                "tagmill_membership_epoch", "Epoch of what workers own: it grows when that changes"
            ),
            GaugeMetricFamily(
                "tagmill_owned_partitions",
                "Partitions that a worker is to hold",
                labels=["cluster", "worker"],
            ),
            GaugeMetricFamily(
                "tagmill_preferred_partitions",
                "Partitions that a worker is preferred for: fewer while it warms them",
                labels=["cluster", "worker"],
            ),
            GaugeMetricFamily(
                "tagmill_table_rows",
                "Rows of the tables that grow with time, as the database estimates them",
                labels=["table"],
            ),
            GaugeMetricFamily("tagmill_document_bytes", "Bytes that stored documents take"),
            GaugeMetricFamily(
                "tagmill_document_ratio",
                "Packed bytes a byte of XML, when documents were last looked at",
                labels=["cluster", "probe"],
            ),
            GaugeMetricFamily(
                "tagmill_documents_to_pack", "Documents that are still to be packed anew, about"
            ),
            GaugeMetricFamily(
                "tagmill_damaged_documents", "Documents that could not be read when last packed"
            ),
            GaugeMetricFamily("tagmill_partitions", "Partitions"),
            GaugeMetricFamily("tagmill_nodes", "Nodes that are not deleted"),
            GaugeMetricFamily("tagmill_tombstones", "Slots of nodes that were deleted or moved"),
            GaugeMetricFamily(
                "tagmill_sparse_partitions", "Full partitions that are to be emptied into others"
            ),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        # Whoever asks while somebody reads gets what was read before: scrapes of a slow database
        # must not fill the pool that hands out leases.
        if self._lock.acquire(blocking=False):
            try:
                if self._clock() - self._read_at >= CACHE_SECONDS:
                    self._found = self._read()
                    self._read_at = self._clock()
            finally:
                self._lock.release()
        yield from self._found

    def _read(self) -> list[GaugeMetricFamily]:
        up, jobs, stale, age, stale_there, alive, tags, *more = found = self.describe()
        shares, rows, documents = more[:3], more[3], more[4:-4]
        try:
            for status, count in queue.job_counts().items():
                jobs.add_metric([status], count)
            waits = staleness.by_cluster()
            stale.add_metric([], sum(waits.values()))
            by_cluster: Tally[int] = Tally()
            for (_, cluster), count in waits.items():
                by_cluster[cluster] += count
            for cluster, name, workers in waiting.live_workers():
                stale_there.add_metric([name], by_cluster[cluster])
                alive.add_metric([name], workers)
            for state, count in tags_by_state({expression for expression, _ in waits}).items():
                tags.add_metric([state], count)
            _shares(*shares)
            for table, estimate in maintenance.growing_tables():
                rows.add_metric([table], estimate)
            _documents(*documents)
            for gauge, figure in zip(more[-4:], compaction.figures(), strict=True):
                gauge.add_metric([], figure)
            age.add_metric([], leases.oldest_seconds())
        except (db.Error, TagmillError) as error:
            log.warning("metrics without the database", error=str(error).strip())
            up.add_metric([], 0)
            return [up]
        up.add_metric([], 1)
        return found


def _shares(
    epoch: GaugeMetricFamily, owned: GaugeMetricFamily, preferred: GaugeMetricFamily
) -> None:
    epoch.add_metric([], membership.epoch())
    for share in membership.counts():
        owned.add_metric([share.cluster, share.worker], share.owned)
        preferred.add_metric([share.cluster, share.worker], share.counting)


def _documents(
    size: GaugeMetricFamily,
    ratios: GaugeMetricFamily,
    left: GaugeMetricFamily,
    damaged: GaugeMetricFamily,
) -> None:
    figures = packing.figures()
    size.add_metric([], figures.bytes)
    for cluster, probe, ratio in figures.ratios:
        ratios.add_metric([cluster, probe], ratio)
    left.add_metric([], figures.left)
    damaged.add_metric([], figures.damaged)


def tags_by_state(stale: set[int]) -> dict[str, int]:
    """How many tags are in each state of `tagmill.tags.freshness`. `stale` are the expressions with
    a stale match."""
    found = {"ready": 0, "building": 0, "failed": 0}
    rows = Tag.objects.values_list(
        "expression_id",
        "pending_expression_id",
        "expression__failed_at",
        "pending_expression__failed_at",
    )
    for published, pending, published_failed, pending_failed in rows:
        if pending_failed if pending else published_failed:
            found["failed"] += 1
        elif pending or published in stale:
            found["building"] += 1
        else:
            found["ready"] += 1
    return found


DATABASE = DatabaseCollector()
REGISTRY.register(DATABASE)


class ProcessesCollector(Collector):
    """prometheus-client's own `process_*`, of each process by its slot: what a dead one had used
    must not make a sum go back."""

    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        self._pids = pids

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for slot, pid in self._pids().items():
            for family in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                kept = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    kept.add_sample(sample.name, {"process": str(slot)}, sample.value)
        yield from found.values()


_registry = REGISTRY


def count_all_processes(pids: Callable[[], dict[int, int]]) -> None:
    """From now on show what all processes have counted. `pids`: those that live, by slot."""
    global _registry  # noqa: PLW0603 - once, at the start of a process
    made = CollectorRegistry()
    multiprocess.MultiProcessCollector(made)  # type: ignore[no-untyped-call]
    # Whoever is asked asks the database; the others do not.
    made.register(DATABASE)
    made.register(ProcessesCollector(pids))
    _registry = made


def exposition() -> bytes:
    """The text that Prometheus reads."""
    for _ in range(ATTEMPTS - 1):
        try:
            return prometheus.generate_latest(_registry)
        except struct.error:
            continue
    return prometheus.generate_latest(_registry)
