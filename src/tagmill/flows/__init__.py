"""Transactions that span the rooms below. No room imports this one, and it has no tables.

- `ingest`, `imports`: uploads, one by one and in bulk.
- `completions`: results of workers are applied.
- `clusters`: a cluster is deleted with all that belongs to it.
- `diagnosis`: what is wrong with the database, for `doctor`.
- `maintenance`: the periodic tasks.
- `restoring`: a restore of the database is declared.
"""

__all__ = ["clusters", "completions", "diagnosis", "imports", "ingest", "maintenance", "restoring"]
