"""Which request made the work of a partition, for traces: who leases it goes on with that trace.

Kept while traces are on, until the partition is leased. What is lost is a part of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from tagmill import sql
from tagmill_wire import tracing

# A trace that nobody goes on with for so long has ended.
MAX_MINUTES = 60


def remember(partitions: Sequence[int]) -> None:
    """In a transaction that leaves work in these, the last lock that it takes."""
    place = tracing.here()
    if tracing.is_on() and tracing.is_recorded(place):
        values = {"partitions": sorted(partitions), "place": place}
        sql.run(__file__, "remember_traces", values)


def taken(partitions: Sequence[int]) -> list[str]:
    """The places in traces that the work of these belongs to, and which are forgotten."""
    return sorted(set(sql.values(__file__, "take_traces", {"partitions": list(partitions)})))


def forget() -> None:
    sql.run(__file__, "forget_traces", {"minutes": MAX_MINUTES})
