"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

# What a container is limited to (cgroup v2): microseconds of CPU, and in how many, or `max`.
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available(quota: Path = QUOTA) -> int:
    """The cores that the process may run on, and no more than a container's quota gives."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
        return max(1, min(cores, math.ceil(int(share) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cores
