"""Workers, and the work that they are leased.

It knows no tag, rebuild or preview.

- `models`: worker tokens, workers and leases.
- `workers`: tokens are issued and workers register.
- `leases`: jobs are deferred, leased, finished and given up.
"""

__all__ = ["leases", "models", "workers"]
