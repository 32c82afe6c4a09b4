"""Stored documents are packed anew in the background: those of before there were dictionaries, and
those that name a dictionary with a successor.

In steps, each of them one transaction that also stores how far it came. Whoever is killed has lost
one step; readers read both forms all the while, and who uploads a document wins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import structlog
from django.db import transaction

from tagmill import sql
from tagmill.config import load
from tagmill.errors import DocumentDamaged
from tagmill.fleet import at_rest, dictionaries
from tagmill.fleet.at_rest import AtRest

log = structlog.get_logger("tagmill.packing")

# One step: rows that are seen, and bytes of XML that are packed anew, if there is more than one
# document. Some 50 ms.
MAX_DOCUMENTS = 500
MAX_BYTES = 4 * 1024 * 1024
# By then every process packs with a dictionary that is new now.
LEARNT_SECONDS = at_rest.REFRESH_SECONDS + 5


class State(NamedTuple):
    """`node`: None where nothing is to be done. `left` is about how many documents are not seen
    yet, `damaged` how many of those seen cannot be read."""

    node: int | None
    probe: str
    left: int
    damaged: int
    may_begin: bool


class Ratio(NamedTuple):
    """Packed bytes a byte of XML of a cluster's probe, when its documents were last looked at."""

    cluster: str
    probe: str
    ratio: float


class Figures(NamedTuple):
    """`bytes`: what the table of documents takes, with its index and what is out of its rows.
    `left` and `damaged` as in State."""

    bytes: int
    left: int
    damaged: int
    ratios: list[Ratio]


class _Seen(NamedTuple):
    node: int
    probe: str
    size: int
    dictionary: int | None
    cluster: int
    wanted: int | None


class _Stored(NamedTuple):
    node: int
    probe: str
    xml: str | None
    packed: bytes | None
    dictionary: int | None
    size: int
    digest: bytes


def state() -> State:
    found = sql.named(State, __file__, "packing_state", {})
    return found[0] if found else State(None, "", 0, 0, may_begin=True)


def figures() -> Figures:
    ((size, left, damaged, *columns),) = sql.rows(__file__, "document_figures", {})
    return Figures(size, left, damaged, [Ratio(*row) for row in zip(*columns, strict=True)])


def run(seconds: float) -> int:
    """Look at what is due, and pack for so long; how many documents were packed."""
    if not load().pack_documents:
        return 0
    sql.run(__file__, "ensure_packing", {})
    if not state().may_begin:
        return 0
    deadline = time.monotonic() + seconds
    if _look(deadline, dictionaries.LOOK_SECONDS):
        sql.run(__file__, "begin_packing", {"seconds": LEARNT_SECONDS})
    return _pack_until(deadline)


def run_all() -> int:
    """The same for all clusters and documents, now. A server that has not heard of a new dictionary
    yet stores some documents with the one before; they are found at a later look."""
    if not load().pack_documents:
        return 0
    sql.run(__file__, "ensure_packing", {})
    _look(float("inf"), 0)
    sql.run(__file__, "begin_packing", {"seconds": None})
    return _pack_until(float("inf"))


def _look(deadline: float, seconds: int) -> bool:
    """Whether anything is to be packed anew. `seconds`: those looked at since are left out."""
    is_behind = False
    for cluster, nodes in dictionaries.due(seconds):
        is_behind |= dictionaries.look(cluster, nodes, seconds)
        if time.monotonic() > deadline:
            break
    return is_behind


def _pack_until(deadline: float) -> int:
    packed = 0
    while time.monotonic() < deadline:
        done = step()
        if done is None:
            break
        packed += done
    return packed


def step() -> int | None:
    """How many documents were packed; None where nothing is to be done, or another does it."""
    with transaction.atomic():
        places = sql.rows(__file__, "hold_packing", {})
        if not places:
            return None
        ((node, probe),) = places
        after = {"node": node, "probe": probe, "documents": MAX_DOCUMENTS}
        seen = _within(sql.bound(_Seen, __file__, "next_documents", after))
        damaged, packed = _pack([item for item in seen if item.wanted != item.dictionary])
        last = seen[-1] if seen else None
        values = {
            "node": last and last.node,
            "probe": last.probe if last else "",
            "seen": len(seen),
            "damaged": damaged,
        }
        sql.run(__file__, "went_on_packing", values)
    if last is None:
        forgotten = dictionaries.forget()
        log.info("all documents are packed", action="packed", dictionaries_deleted=forgotten)
    return packed


def _within(seen: Sequence[_Seen]) -> Sequence[_Seen]:
    """The first of them, as many as the bytes to pack allow, but at least one."""
    size = 0
    for number, item in enumerate(seen):
        size += item.size if item.wanted != item.dictionary else 0
        if size > MAX_BYTES and number:
            return seen[:number]
    return seen


def _pack(chosen: Sequence[_Seen]) -> tuple[int, int]:
    """How many of them cannot be read, and how many are stored in another form."""
    if not chosen:
        return 0, 0
    wanted = {(item.node, item.probe): item.wanted for item in chosen}
    keys = {"nodes": [item.node for item in chosen], "probes": [item.probe for item in chosen]}
    damaged = 0
    rows: list[tuple[int, str, bytes, bytes, int]] = []
    for item in sql.bound(_Stored, __file__, "documents_at_rest", keys):
        key = wanted[item.node, item.probe]
        if key is None:
            continue
        stored = AtRest(item.xml, item.packed, item.dictionary, item.size)
        try:
            xml = at_rest.unpack(stored).encode()
            packed = at_rest.dictionary(key).pack(xml)
        except DocumentDamaged as error:
            damaged += 1
            log.error(error.detail, action="damaged", node=item.node, probe=item.probe)
            continue
        if len(packed) < item.size:
            rows.append((item.node, item.probe, bytes(item.digest), packed, key))
    if rows:
        names = ["nodes", "probes", "digests", "packed", "dictionaries"]
        columns = (list(column) for column in zip(*rows, strict=True))
        sql.run_binary(__file__, "repack_documents", dict(zip(names, columns, strict=True)))
    return damaged, len(rows)
