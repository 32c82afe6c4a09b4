"""Nodes as lines that an import takes. Each chunk is a reading of its own, bounded in what it
holds: whoever exports a fleet holds no transaction open while a client reads.

Nodes that are there all the time, and where they are, come once each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import structlog

from tagmill import sql
from tagmill.errors import DocumentDamaged
from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest
from tagmill.tags import places
from tagmill.tags.places import Filters, Found

log = structlog.get_logger("tagmill.exports")

# In one chunk; of the documents' XML, one node at least.
MAX_NODES = 256
MAX_BYTES = 4 * 1024 * 1024


class Chunk(NamedTuple):
    """`after`: what the next chunk is after; None for the last."""

    lines: bytes
    after: int | None


class _Document(NamedTuple):
    """`is_cut`: the node's documents are beyond what the chunk may hold, and left out."""

    partition: int
    slot: int
    probe: str
    xml: str | None
    packed: bytes | None
    dictionary: int | None
    size: int
    is_cut: bool


def chunk(wanted: Filters, after: int, *, with_documents: bool) -> Chunk:
    """The next nodes, whose place is above `after`: as `{"system_id", "cluster", "hostname",
    "kind"}` and, with documents, `"probes": {probe: XML}`."""
    with sql.snapshot():
        rows = places.matching(wanted, after, MAX_NODES)
        found = _documents(rows) if with_documents else []
    cut = min((_key(document) for document in found if document.is_cut), default=None)
    shown = rows if cut is None else [row for row in rows if row.key < cut]
    probes: dict[int, dict[str, str]] = {row.key: {} for row in shown}
    for document in found:
        if not document.is_cut:
            _add(document, probes[_key(document)])
    lines = [_line(row, probes[row.key] if with_documents else None) for row in shown]
    has_more = cut is not None or len(rows) == MAX_NODES
    return Chunk(b"".join(lines), shown[-1].key if has_more else None)


def _documents(rows: Sequence[Found]) -> list[_Document]:
    pairs = [places.place(row.key) for row in rows]
    values = {
        "partitions": [partition for partition, _ in pairs],
        "slots": [slot for _, slot in pairs],
        "max_bytes": MAX_BYTES,
    }
    return sql.bound(_Document, __file__, "exported_documents", values) if rows else []


def _key(document: _Document) -> int:
    return places.key(document.partition, document.slot)


def _add(document: _Document, probes: dict[str, str]) -> None:
    """One that is damaged is left out: whoever imports the line leaves that probe as it is."""
    stored = AtRest(document.xml, document.packed, document.dictionary, document.size)
    try:
        probes[document.probe] = at_rest.unpack(stored)
    except DocumentDamaged as error:
        place = {"partition": document.partition, "slot": document.slot}
        log.error(error.detail, action="damaged", probe=document.probe, **place)


def _line(row: Found, probes: dict[str, str] | None) -> bytes:
    body: dict[str, Any] = {
        "system_id": row.system_id,
        "cluster": row.cluster,
        "hostname": row.hostname,
        "kind": row.kind,
    }
    if probes is not None:
        body["probes"] = probes
    return orjson.dumps(body) + b"\n"
