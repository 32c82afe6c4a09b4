"""The fleet's current documents, straight from the database, for comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import connection, transaction

from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest

# Read through a server-side cursor, so that 100,000 documents are never held at once.
SELECT = """
SELECT node.id, document.probe, document.xml, packed, dictionary_id, document.size
  FROM node JOIN document ON document.node_id = node.id
 WHERE node.deleted_at IS NULL
 ORDER BY node.id, document.probe
"""
ROWS = 200


class NodeDocuments(NamedTuple):
    node_id: int
    probes: dict[str, str]


def stream() -> Iterator[NodeDocuments]:
    """Every live node that has documents, in the order of its id."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"DECLARE documents NO SCROLL CURSOR FOR {SELECT}")
        current: NodeDocuments | None = None
        while rows := _fetch():
            for node_id, probe, *stored in rows:
                if current is None or current.node_id != node_id:
                    if current is not None:
                        yield current
                    current = NodeDocuments(node_id, {})
                current.probes[probe] = at_rest.unpack(AtRest(*stored))
        if current is not None:
            yield current


def _fetch() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"FETCH {ROWS} FROM documents")
        return list(cursor.fetchall())


def mean_bytes() -> float:
    """Mean size of a live node's documents, bytes of XML."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(size)::float / nullif(count(DISTINCT node_id), 0), 0)"
            "  FROM document JOIN node ON node.id = node_id AND node.deleted_at IS NULL"
        )
        (mean,) = cursor.fetchone()
        return float(mean)
