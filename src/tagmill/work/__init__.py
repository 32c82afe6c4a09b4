"""Workers, and the work that they are leased.

It knows no tag, rebuild or preview.

- `models`: worker tokens, workers and leases.
- `workers`: tokens are issued and workers register.
- `policy`: who is leased how much of what.
- `queue`: jobs wait, are taken and end.
- `naming`: how leases name expressions.
- `leases`: partitions are leased, kept, finished and given up.
"""

__all__ = ["leases", "models", "naming", "policy", "queue", "workers"]
