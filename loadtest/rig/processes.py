"""CPU seconds by part of the system: on a shared machine they are less noisy than wall time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """User plus system time so far of each process and all its descendants, by `roots`' names.

    Names that differ only in a number (`worker-1`, `worker-2`) are added up.
    """
    totals: dict[str, float] = {}
    for name, pid in roots.items():
        group = name.partition("-")[0]
        totals[group] = totals.get(group, 0.0) + _tree(pid)
    return totals


def _tree(pid: int) -> float:
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for process in family:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # What ended children used is theirs no more, but their parent's.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def busy_seconds() -> float:
    """CPU seconds so far of the whole machine, whoever used them."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def postmaster() -> int | None:
    """The embedded PostgreSQL's first process, or None when the database is the user's own."""
    directory = dict(
        part.split("=", 1)
        for part in os.environ.get("DATABASE_URL", "").partition("?")[2].split("&")
        if "=" in part
    ).get("host", "")
    for candidate in (Path(directory), Path(directory) / "postgres"):
        file = candidate / "postmaster.pid"
        if file.exists():
            return int(file.read_text().split()[0])
    return None


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: round(after[name] - before.get(name, 0.0), 3) for name in after}
