"""The keyspaces of the body cache, registered here and nowhere else.

A body is exact: its name holds the revision of everything that it shows. A status is not: it moves
with the clock and with workers, so that it is built for each request, but for one that allows an
age (`Cache-Control: max-age=`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Keyspace:
    """`is_status`: it has no revision, and a lifetime where a request allows it."""

    name: str
    about: str
    is_status: bool = False


TAG_NODES = Keyspace("tag_nodes", "The nodes of a tag: pages, all of them as NDJSON or bitmaps")
NODES = Keyspace("nodes", "Lists of nodes, with their filters; places as bitmaps")
TAGS = Keyspace("tags", "Lists of tags with their states", is_status=True)
REBUILDS = Keyspace("rebuilds", "Rebuilds and their progress", is_status=True)
BATCHES = Keyspace("batches", "Pages of documents for workers")
EXPRESSION_SETS = Keyspace("expression_sets", "Definitions for workers")
DICTIONARIES = Keyspace("dictionaries", "What packed documents of batches are unpacked with")

KEYSPACES = {
    keyspace.name: keyspace
    for keyspace in (TAG_NODES, NODES, TAGS, REBUILDS, BATCHES, EXPRESSION_SETS, DICTIONARIES)
}
