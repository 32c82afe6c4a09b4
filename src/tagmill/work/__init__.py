"""Workers, and the work that they are leased.

It knows no tag, rebuild or preview.

- `models`: worker tokens, workers and leases.
- `workers`: tokens are issued and workers register.
- `policy`: who is leased how much of what.
- `placement`: which worker should hold which partition, by rules on plain values.
- `membership`: who owns what now, as workers come and go.
- `queue`: jobs wait, are taken and end.
- `naming`: how leases name expressions.
- `leases`: partitions are leased, kept, finished and given up.
- `samples`: how the fleet was at moments of the last hours.
- `traces`: which request made the work of a partition.
"""

__all__ = [
    "leases",
    "membership",
    "models",
    "naming",
    "placement",
    "policy",
    "queue",
    "samples",
    "traces",
    "workers",
]
