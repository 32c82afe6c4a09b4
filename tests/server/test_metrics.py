"""docs/metrics.md lists exactly what /metrics shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from api import metrics
from api.server.app import Server
from tagmill import config
from tagmill.fleet import clusters
from tagmill_wire.messages import Completion, CompletionAnswer, PartitionResult, ResultOutcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def registered() -> set[tuple[str, str, str]]:
    """(name, type, labels) of every metric of ours."""
    found = set()
    for collector in metrics.REGISTRY._collector_to_names:
        families = collector.describe() if hasattr(collector, "describe") else ()
        labels = getattr(collector, "_labelnames", ())
        for family in families:
            name = family.name + ("_total" if family.type == "counter" else "")
            names = labels or getattr(family, "_labelnames", ())
            found.add((name, family.type, ", ".join(names)))
    return {item for item in found if item[0].startswith("tagmill_")}


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(tagmill_\w+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.M)
    documented = {(name, kind, labels.replace("`", "").strip()) for name, kind, labels in rows}
    assert documented == registered()


def test_every_native_route_is_documented() -> None:
    server = Server(Clock(), config.load(), run_maintenance=False)
    routes = {route.name for route in server._site.routes}
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
        "tagmill_table_rows",
    }
    clusters.create("north")
    assert list(collector.collect()) == first
    now[0] = metrics.CACHE_SECONDS
    assert list(collector.collect()) != first


def test_a_scrape_does_not_wait_for_another_that_reads(db: None) -> None:
    now = [0.0]
    collector = metrics.DatabaseCollector(lambda: now[0])
    first = list(collector.collect())
    now[0] = metrics.CACHE_SECONDS
    with collector._lock:
        assert list(collector.collect()) == first
