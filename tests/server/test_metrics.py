"""docs/metrics.md lists exactly what /metrics shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api import metrics
from wire.messages import Completion, CompletionAnswer, PartitionResult, ResultOutcome

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
        Completion("w", [PartitionResult("l", 1, 1, [], [], 4, 2.0)]),
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
    }
    assert list(collector.collect()) == first
    assert collector._found is not None
    kept = collector._found
    now[0] = metrics.CACHE_SECONDS
    list(collector.collect())
    assert collector._found is not kept
