"""What `bench fleet` makes of its steps: figures of each, and what saturated first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadtest.bench import percentile
from loadtest.rig.behaviour import Report

# The share of one core, or of all, that counts as full: a process that also waits for I/O never
# reaches more.
FULL = 0.85


def summary(
    size: int,
    seconds: float,
    *,
    used: dict[str, float],
    busy: float,
    cores: int,
    reports: Sequence[Report],
) -> dict[str, Any]:
    """One step as JSON. `used`: CPU seconds by process; `busy`: share of the machine's `cores`."""
    timings: dict[str, float] = {}
    for call in ("lease", "batch", "complete"):
        values = sorted(value for item in reports for value in getattr(item, f"{call}_ms"))
        timings |= {
            f"{call}_p50_ms": round(percentile(values, 0.5), 2),
            f"{call}_p95_ms": round(percentile(values, 0.95), 2),
        }
    errors: dict[str, int] = {}
    for item in reports:
        for kind, count in item.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    counts = {
        name: sum(getattr(item, name) for item in reports)
        for name in ("applied", "late", "duplicates", "vanished", "parked", "round_trips")
    }
    return {
        "workers": size,
        "generators": len(reports),
        "seconds": round(seconds, 3),
        "completions_per_second": round((counts["applied"] + counts["late"]) / seconds, 2),
        **timings,
        **counts,
        "received_bytes": sum(item.received_bytes for item in reports),
        "cores": {name: round(value / seconds, 3) for name, value in used.items()},
        "machine_busy": round(busy, 3),
        # What neither the system nor the bench used: somebody else's, or the kernel's.
        "other_cores": round(max(0.0, busy * cores - sum(used.values()) / seconds), 3),
        "errors": errors,
    }


def conclusion(steps: Sequence[dict[str, Any]], cores: int) -> dict[str, Any]:
    """What the ramp says.

    One worker alone, which never waits for others, completes `demand` partitions a second. A core
    of the API feeds as many workers as it completes partitions for at the best step.
    """
    best = max(steps, key=lambda step: float(step["completions_per_second"]))
    demand = steps[0]["completions_per_second"] / steps[0]["workers"]
    fed = best["completions_per_second"] / demand if demand else 0.0
    api_cores = max(best["cores"].get("server", 0.0), 1e-3)
    last = steps[-1]
    is_saturated = last is not best or (
        last["completions_per_second"] < FULL * demand * last["workers"]
    )
    return {
        "workers_per_api_core": round(fed / api_cores, 2),
        "lease_p95_ms": best["lease_p95_ms"],
        "lease_p50_ms": best["lease_p50_ms"],
        "bottleneck": bottleneck(last if is_saturated else best, cores, is_saturated),
        "saturated": is_saturated,
        "workers_fed": round(fed, 2),
        "completions_per_second": best["completions_per_second"],
        "completions_per_api_core_second": round(best["completions_per_second"] / api_cores, 2),
        "api_cores": round(api_cores, 3),
        "worker_demand_per_second": round(demand, 3),
    }


def bottleneck(step: dict[str, Any], cores: int, is_saturated: bool) -> str:
    """What stopped the growth. Python runs one thread at a time, so that one core is all that an
    API server or a load generator can have; PostgreSQL can have what the machine has."""
    used = step["cores"]
    if not is_saturated:
        return "workers"
    if used.get("generator", 0.0) >= FULL * step["generators"]:
        return "load_generator"
    if used.get("server", 0.0) >= FULL:
        return "api_cpu"
    if used.get("database", 0.0) >= FULL * (cores - 1 or 1):
        return "database_cpu"
    if step["machine_busy"] >= FULL:
        largest = max(("server", "database", "generator"), key=lambda name: used.get(name, 0.0))
        names = {"server": "api_cpu", "database": "database_cpu", "generator": "load_generator"}
        return names[largest]
    return "waiting"
