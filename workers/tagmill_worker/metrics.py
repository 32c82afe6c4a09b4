"""The worker's Prometheus metrics. A test holds the table of docs/worker.md against this."""

from __future__ import annotations

from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from twisted.web.resource import Resource
from twisted.web.server import Site

from tagmill_wire.messages import Register
from tagmill_worker import logs

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTES = tuple(float(1 << n) for n in range(10, 25, 2))


class Metrics:
    """One set a worker, in a registry of its own, so that tests may make many."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry}
        self.evaluation_seconds = Histogram(
            "tagmill_worker_evaluation_seconds",
            "Unpacking, parsing and evaluating one batch, all its expressions",
            buckets=SECONDS,
            **make,
        )
        self.documents = Counter("tagmill_worker_documents", "Documents evaluated", **make)
        self.unreadable = Counter(
            "tagmill_worker_unreadable_documents",
            "Documents that the parser refused; they match nothing",
            **make,
        )
        self.unfinished = Counter(
            "tagmill_worker_unfinished_documents",
            "Documents and pages on which the child stalled or died twice; their partitions were"
            " given back",
            **make,
        )
        self.batch_bytes = Histogram(
            "tagmill_worker_batch_bytes", "Bytes of a batch, compressed", buckets=BYTES, **make
        )
        self.retries = Counter(
            "tagmill_worker_retries", "Requests tried again, by call", ["call"], **make
        )
        self.leases = Counter("tagmill_worker_leases", "Partitions leased", **make)
        self.completions = Counter(
            "tagmill_worker_completions",
            "Partitions by their end: `applied`, `late`, `lost` (the lease had ended before the"
            " evaluation did) or `given_up`",
            ["outcome"],
            **make,
        )
        self.failures = Counter(
            "tagmill_worker_failures", "Expressions reported as failed on a partition", **make
        )
        self.child_restarts = Counter(
            "tagmill_worker_child_restarts",
            "Child processes started anew, by reason: `stopped` (the watchdog) or `died`",
            ["reason"],
            **make,
        )
        self.shadowed = Counter(
            "tagmill_worker_shadowed_documents",
            "Documents that the reference was asked about, too (`--shadow`)",
            **make,
        )
        self.disagreements = Counter(
            "tagmill_worker_disagreements",
            "Expressions and documents on which the reference differs (`--shadow`)",
            **make,
        )
        self.image_bytes = Gauge(
            "tagmill_worker_image_bytes", "Bytes of the images that the child holds", **make
        )
        self.store_bytes = Gauge(
            "tagmill_worker_store_bytes", "Bytes of batches held, compressed", **make
        )
        self.info = Gauge(
            "tagmill_worker_info",
            "1; which worker this is, once it has registered",
            ["worker", "name", "host", "pid", "evaluator", "version"],
            **make,
        )
        self._cache(make)
        self._share(make)
        lost = Gauge(
            "tagmill_worker_log_lines_lost",
            "Lines of the log that could not be written, as to a full disk",
            **make,
        )
        lost.set_function(lambda: logs.STREAM.lost)
        self.store_partitions = Gauge("tagmill_worker_store_partitions", "Partitions held", **make)

    def _share(self, make: dict[str, Any]) -> None:
        self.share_epoch = Gauge(
            "tagmill_worker_share_epoch", "Epoch of the share that the worker knows", **make
        )
        self.share_partitions = Gauge(
            "tagmill_worker_share_partitions", "Partitions that the worker should hold", **make
        )
        self.share_missing = Gauge(
            "tagmill_worker_share_missing_partitions",
            "Partitions of its share that the worker is still to warm",
            **make,
        )
        self.warmed = Counter(
            "tagmill_worker_warmed",
            "Partitions fetched ahead of leases: `warmed`, `full` (no room), `gone` or `failed`",
            ["outcome"],
            **make,
        )

    def _cache(self, make: dict[str, Any]) -> None:
        self.cache_off = Gauge(
            "tagmill_worker_cache_off",
            "1 where `--cache-dir` was given and cannot be used (the log says why): worth an alarm",
            **make,
        )
        self.cache_bytes = Gauge(
            "tagmill_worker_cache_bytes",
            "Bytes of the cache's files: `pages`, `images`, or `aside`, those not believed",
            ["kind"],
            **make,
        )
        self.cache_partitions = Gauge(
            "tagmill_worker_cache_partitions", "Partitions in the cache", **make
        )
        self.cache_age = Gauge(
            "tagmill_worker_cache_oldest_seconds",
            "How long the partition that was kept first, or found at the start, is in the cache",
            **make,
        )
        self.cache_state_bytes = Gauge(
            "tagmill_worker_cache_state_bytes",
            "Bytes of the cache's partitions: `clean` (others have them, or nearly), `dirty` (not"
            " shared yet) or `flushing`",
            ["state"],
            **make,
        )
        self.cache_dirty_age = Gauge(
            "tagmill_worker_cache_dirty_oldest_seconds",
            "How long the partition that waits longest to be shared does so",
            **make,
        )
        self.cache_flushes = Counter(
            "tagmill_worker_cache_flushes",
            "Partitions shared with other workers: `stored`, `failed` (tried again) or `refused`",
            ["outcome"],
            **make,
        )
        self.cache_reads = Counter(
            "tagmill_worker_cache_reads",
            "Partitions read from the cache: `hit`, `miss` (the file has gone) or `damaged`",
            ["outcome"],
            **make,
        )
        self.cache_images = Counter(
            "tagmill_worker_cache_images",
            "Images of pages: `saved`, `opened` instead of parsing, or `damaged`",
            ["outcome"],
            **make,
        )
        self.cache_passed = Counter(
            "tagmill_worker_cache_passed",
            "Partitions, and changes of some, for which the cache had no room",
            **make,
        )
        self.cache_evicted = Counter(
            "tagmill_worker_cache_evicted", "Partitions evicted from the cache", **make
        )
        self._shared(make)

    def _shared(self, make: dict[str, Any]) -> None:
        self.paths = Counter(
            "tagmill_worker_paths",
            "Partitions by where their pages came from: `hot` (memory), `warm` (the cache),"
            " `shared`, or `documents`, for all or for what has changed",
            ["path"],
            **make,
        )
        self.shared_reads = Counter(
            "tagmill_worker_shared_reads",
            "Shared images asked for: `hit`, `miss`, or `failed`",
            ["outcome"],
            **make,
        )
        self.shared_images = Counter(
            "tagmill_worker_shared_images",
            "Images of pages in shared ones: `opened` instead of parsing, or `damaged`",
            ["outcome"],
            **make,
        )
        self.shared_bytes = Counter(
            "tagmill_worker_shared_bytes",
            "Bytes of shared images, `read` and `written`",
            ["direction"],
            **make,
        )

    def identify(self, worker: str, said: Register) -> None:
        """It registered; what it was before does not count any more."""
        self.info.clear()
        pid = str(said.pid)
        self.info.labels(worker, said.name, said.host, pid, said.evaluator, said.version).set(1)

    def site(self) -> Site:
        root: Any = Resource()
        page: Any = _Page(self.registry)
        root.putChild(b"metrics", page)
        return Site(root)


class _Page(Resource):
    isLeaf = True

    def __init__(self, registry: CollectorRegistry) -> None:
        Resource.__init__(self)
        self._registry = registry

    def render_GET(self, request: Any) -> bytes:
        request.setHeader(b"Content-Type", CONTENT_TYPE_LATEST.encode())
        return generate_latest(self._registry)
