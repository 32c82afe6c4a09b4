"""The fleet: clusters, partitions of slots, nodes and their documents.

It knows no expression. Uploads enter by `tagmill.flows.ingest`, which writes nodes and documents.

- `models`: the tables and their invariants.
- `clusters`: clusters are found, made and renamed.
- `at_rest`: how documents are stored: packed with a dictionary, or as XML.
- `dictionaries`, `packing`: dictionaries are trained, and stored documents packed anew.
- `documents`, `digests`: what an upload holds, checked before any lock is taken.
- `partitions`: locked partitions, which hand out slots and raise revs.
- `batches`: the documents of a partition in pages, for workers.
- `changes`: what has changed in some partitions, for leases that bring it along.
- `images`: images of partitions that workers share, in the image store.
- `incarnation`: which history of the database a rev belongs to.
- `vocabularies`: the names and values that documents contain.
"""

__all__ = [
    "at_rest",
    "batches",
    "changes",
    "clusters",
    "dictionaries",
    "digests",
    "documents",
    "images",
    "incarnation",
    "models",
    "packing",
    "partitions",
    "vocabularies",
]
