"""Samples of the fleet, for charts: a bounded table of the last hours."""

from __future__ import annotations

from tagmill import sql
from tagmill.config import load

# Between two samples. A server whose turn comes early does not take another.
EVERY_SECONDS = 20
KEPT_SECONDS = 2 * 3600
MAX_SAMPLES = KEPT_SECONDS // EVERY_SECONDS


def take() -> int:
    """Take one where the last is old enough, and delete what is too old; how many were taken."""
    values = {"seconds": EVERY_SECONDS // 2, "alive": load().lease_seconds}
    taken = sql.run(__file__, "take_sample", values)
    sql.run(__file__, "forget_samples", {"seconds": KEPT_SECONDS})
    return taken
