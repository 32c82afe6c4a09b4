"""Changes settle where they happen: an upload's documents are evaluated before the locks are taken,
and their verdicts stored in the upload's own transaction.

Nothing about correctness depends on it. What is not settled here (several servers' worth of
documents at once, an expression that the kernel refuses or that takes long, a partition whose
matches are behind) is stale, and is left to the workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tagmill import sql
from tagmill.config import load
from tagmill.fleet.documents import CheckedUpload
from tagmill.fleet.partitions import Held, HeldPartitions
from tagmill.flows.writes import Changed, Stored
from tagmill.matches import matches, verdicts
from tagmill.matches.matches import Result

# More documents than these, which are stored already and belong to the nodes of an upload, are not
# read again for it.
MAX_BYTES = 16 * 1024 * 1024

Digests = Mapping[str, bytes]


class _Document(NamedTuple):
    """One probe of a node, as it is stored."""

    node: int
    probe: str
    xml: str
    digest: bytes


@dataclass
class Evaluated:
    """What was found before the locks. `positions`: of a node's documents by system_id, with the
    digests of what was evaluated; they are compared again under the lock."""

    is_on: bool = True
    """Whether anything is to be settled here."""
    members: dict[int, int] = field(default_factory=dict)
    positions: dict[str, tuple[int, Digests]] = field(default_factory=dict)


def evaluate(changes: Sequence[tuple[CheckedUpload, Stored | None]]) -> Evaluated:
    """Evaluate the documents that these nodes will have. Waits for no lock."""
    live = verdicts.live()
    if not live or not load().settle_seconds:
        return Evaluated(is_on=load().settle_seconds > 0)
    if not verdicts.HAS_KERNEL:
        return Evaluated()
    stored = _stored(changes)
    documents: list[dict[str, str]] = []
    positions: dict[str, tuple[int, Digests]] = {}
    for checked, node in changes:
        texts, digests = dict(stored.get(node.id, ({}, {}))[0] if node else {}), {}
        if node:
            digests.update(stored.get(node.id, ({}, {}))[1])
        for probe, document in checked.documents.items():
            texts.pop(probe, None)
            digests.pop(probe, None)
            if document is not None:
                texts[probe], digests[probe] = document.xml, document.digest
        positions[checked.upload.system_id] = len(documents), digests
        documents.append(texts)
    found = verdicts.evaluate(documents, live)
    return Evaluated(members=found.members, positions=positions)


def _stored(
    changes: Sequence[tuple[CheckedUpload, Stored | None]],
) -> dict[int, tuple[dict[str, str], dict[str, bytes]]]:
    """Texts and digests of the documents that stay, by node, of those nodes that have any."""
    wanted = [
        node.id for checked, node in changes if node and node.digests.keys() - checked.documents
    ]
    if not wanted:
        return {}
    found: dict[int, tuple[dict[str, str], dict[str, bytes]]] = {}
    values = {"nodes": wanted, "max_bytes": MAX_BYTES}
    for row in map(_Document._make, sql.rows(__file__, "stored_documents", values)):
        texts, digests = found.setdefault(row.node, ({}, {}))
        texts[row.probe], digests[row.probe] = row.xml, bytes(row.digest)
    return found


def settle(held: HeldPartitions, changed: Sequence[Changed], evaluated: Evaluated) -> list[int]:
    """Store the verdicts, and return the partitions that still wait for workers. Relies on: the
    partitions are locked, and everything else that changed is written."""
    # Again, under the locks: what became live since then has no verdict, and waits.
    live = [item.id for item in verdicts.live()]
    if not live:
        return []
    by_partition: dict[int, list[Changed]] = {}
    for item in changed:
        by_partition.setdefault(item.partition, []).append(item)
    results: list[Result] = []
    if evaluated.is_on:
        for partition, items in sorted(by_partition.items()):
            results += _results(held[partition], items, evaluated, live)
    applied = matches.apply_held(results, held) if results else matches.Applied()
    return [
        partition
        for partition in sorted(by_partition)
        if partition in applied.unsettled
        or any((expression, partition) not in applied.keys for expression in live)
    ]


def _results(
    held: Held, items: Sequence[Changed], evaluated: Evaluated, live: Sequence[int]
) -> list[Result]:
    """The verdicts of a partition's changed slots, for every expression that has them all. A
    tombstone has none of any expression, and a node whose documents stay keeps its own."""
    places: list[tuple[int, int]] = []
    slots = 0
    for item in items:
        if item.digests is not None and item.is_same:
            continue
        slots |= 1 << item.slot
        if not item.digests:
            continue
        position, digests = evaluated.positions.get(item.system_id, (0, None))
        # Somebody else has stored another document of the node meanwhile.
        if digests != item.digests:
            return []
        places.append((position, item.slot))
    keys = evaluated.members if places else live
    # Before its first node a partition has no match, and every one would be empty.
    base, mask = (held.before, slots) if held.before else (None, None)
    found = []
    for key in keys:
        bits = 0
        if places and (members := evaluated.members[key]):
            for position, slot in places:
                if members >> position & 1:
                    bits |= 1 << slot
        found.append(Result(key, held.id, held.rev, bits, base, mask))
    return found
