"""docs/metrics.md lists exactly what /metrics shows."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, Histogram, Metric
from twisted.internet.task import Clock

from api import metrics
from api.server.app import Server
from tagmill import config
from tagmill.fleet import clusters
from tagmill_wire.messages import Completion, CompletionAnswer, PartitionResult, ResultOutcome
from tests.support.threads import DEADLINE_SECONDS, done, in_thread

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def named(family: Metric) -> str:
    return family.name + ("_total" if family.type == "counter" else "")


def documented() -> dict[str, tuple[str, list[str]]]:
    """(type, labels) by name."""
    rows = re.findall(r"^\| `(tagmill_\w+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.M)
    return {name: (kind, re.findall(r"\w+", labels)) for name, kind, labels in rows}


def test_every_metric_is_documented_with_its_type(db: None) -> None:
    # The gauges over the database are left out of a collection while it is down.
    found = [*metrics.REGISTRY.collect(), *metrics.DatabaseCollector().describe()]
    ours = {named(family): family.type for family in found if family.name.startswith("tagmill_")}
    assert {name: kind for name, (kind, _) in documented().items()} == ours


def test_every_metric_is_documented_with_its_labels() -> None:
    ours = {
        named(family): metric
        for metric in vars(metrics).values()
        if isinstance(metric, Counter | Gauge | Histogram)
        for family in metric.describe()
    }
    gauges = {family.name: family for family in metrics.DatabaseCollector().describe()}
    for name, (_, labels) in documented().items():
        if name in gauges:
            # It pairs what it is given with the labels that it has.
            gauges[name].add_metric(["x"] * 9, 0)
            (sample,) = gauges[name].samples
            assert list(sample.labels) == labels, name
        elif labels:
            # Raises ValueError unless these are the names of all of them.
            ours[name].labels(**dict.fromkeys(labels, "x"))
            ours[name].remove(*["x"] * len(labels))
        else:
            # A metric with labels has no samples before they are given.
            assert not any(set(item.labels) - {"le"} for item in samples(ours[name])), name
            assert samples(ours[name]), name


def test_every_native_route_is_documented() -> None:
    server = Server(Clock(), config.load(), run_maintenance=False)
    routes = {route.name for route in server.routes}
    (line,) = re.findall(r"^`route` is one of (.*?)\(native\)", PAGE.read_text(), re.M | re.S)
    assert set(re.findall(r"`(\w+)`", line)) == routes


def test_what_waits_counts_no_seconds() -> None:
    for route in ("lease", "events", "preview"):
        metrics.observe_request("POST", route, 200, 30.0)
    counted = {sample.labels["route"] for sample in samples(metrics.REQUEST_SECONDS)}
    assert counted.isdisjoint({"lease", "events", "preview"})


def samples(metric: Any) -> list[Any]:
    return [sample for family in metric.collect() for sample in family.samples]


def test_a_completion_counts_its_outcomes_and_its_seconds_per_document() -> None:
    def sample(name: str, **labels: str) -> float:
        families = [*metrics.COMPLETIONS.collect(), *metrics.EVALUATION_SECONDS.collect()]
        samples = [sample for family in families for sample in family.samples]
        return sum(item.value for item in samples if (item.name, item.labels) == (name, labels))

    count, total = (f"tagmill_evaluation_seconds_per_document_{end}" for end in ("count", "sum"))
    before = (
        sample("tagmill_completions_total", outcome="late"),
        sample(count),
        sample(total),
    )
    metrics.observe_completion(
        Completion("w", "i", [PartitionResult("l", 1, 1, [], [], 4, 2.0)]),
        CompletionAnswer([ResultOutcome("l", "late", 0, 0)]),
    )
    assert sample("tagmill_completions_total", outcome="late") == before[0] + 1
    assert sample(count) == before[1] + 1
    assert sample(total) == pytest.approx(before[2] + 0.5)


def test_the_database_gauges_are_read_at_most_once_in_five_seconds(db: None) -> None:
    now = [0.0]
    collector = metrics.DatabaseCollector(lambda: now[0])
    first = list(collector.collect())
    assert {family.name for family in first} == {
        "tagmill_database_up",
        "tagmill_queue_jobs",
        "tagmill_stale_matches",
        "tagmill_lease_age_seconds",
        "tagmill_cluster_stale_matches",
        "tagmill_workers",
        "tagmill_tags",
        "tagmill_membership_epoch",
        "tagmill_owned_partitions",
        "tagmill_preferred_partitions",
        "tagmill_table_rows",
        "tagmill_document_bytes",
        "tagmill_document_ratio",
        "tagmill_documents_to_pack",
        "tagmill_damaged_documents",
        "tagmill_partitions",
        "tagmill_nodes",
        "tagmill_tombstones",
        "tagmill_sparse_partitions",
    }
    clusters.create("north")
    assert list(collector.collect()) == first
    now[0] = metrics.CACHE_SECONDS
    assert list(collector.collect()) != first


def test_a_scrape_does_not_wait_for_another_that_reads() -> None:
    is_at_it, let_go = threading.Event(), threading.Event()

    def clock() -> float:
        """Whoever asks it first is in the middle of a scrape until it is let go."""
        if not is_at_it.is_set():
            is_at_it.set()
            assert let_go.wait(DEADLINE_SECONDS)
        return float("-inf")

    collector = metrics.DatabaseCollector(clock)
    slow = in_thread(lambda: list(collector.collect()))
    assert is_at_it.wait(DEADLINE_SECONDS)
    try:
        assert done(in_thread(lambda: list(collector.collect()))) == []
        assert not slow.done()
    finally:
        let_go.set()
    assert done(slow) == []
