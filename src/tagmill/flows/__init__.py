"""Transactions that span the rooms below. No room imports this one, and it has no tables.

- `ingest`, `imports`: uploads, one by one and in bulk; `replacing`: a node as an upload says it.
- `exports`: nodes with their documents, in chunks.
- `compaction`: partitions with few live nodes are emptied into others.
- `completions`: results of workers are applied.
- `clusters`: a cluster is deleted with all that belongs to it.
- `feed`: what has changed since a cursor, complete and in order.
- `diagnosis`: what is wrong with the database, for `doctor`.
- `maintenance`: the periodic tasks.
- `restoring`: a restore of the database is declared.
- `together`: changes that arrive in several threads share a transaction.
"""

__all__ = [
    "clusters",
    "compaction",
    "completions",
    "diagnosis",
    "exports",
    "feed",
    "imports",
    "ingest",
    "maintenance",
    "replacing",
    "restoring",
    "together",
]
