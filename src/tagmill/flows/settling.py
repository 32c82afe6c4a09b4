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
from tagmill.matches import matches, staleness, verdicts
from tagmill.matches.matches import Difference, Result
from tagmill.matches.verdicts import ExpressionSet
from tagmill_wire import bitmap

# More documents than these, which are stored already and belong to the nodes of an upload, are not
# read again for it.
MAX_BYTES = 16 * 1024 * 1024

# As many changed slots of a partition are compared with what is stored by the database; more, here.
MAX_COMPARED = 8

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

    live: ExpressionSet
    is_on: bool = True
    """Whether anything is to be settled here."""
    members: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[str, tuple[int, Digests]] = field(default_factory=dict)


class _Slots(NamedTuple):
    """The slots of a partition whose verdicts may change, and the positions of their documents
    (None: it has none, and no expression holds)."""

    slots: list[int]
    positions: list[int | None]


class _Answers(NamedTuple):
    """The verdicts of a partition's slots, by expression, as bitmaps over their positions."""

    slots: list[int]
    bits: dict[int, int]


def evaluate(changes: Sequence[tuple[CheckedUpload, Stored | None]]) -> Evaluated:
    """Evaluate the documents that these nodes will have. Waits for no lock."""
    if not load().settle_seconds:
        return Evaluated(verdicts.NONE, is_on=False)
    live = verdicts.current()
    if not live.plans:
        return Evaluated(live)
    stored = _stored(changes)
    documents: list[dict[str, str]] = []
    positions: dict[str, tuple[int, Digests]] = {}
    for checked, node in changes:
        kept = stored.get(node.id, []) if node else []
        texts = {row.probe: row.xml for row in kept if row.probe not in checked.documents}
        digests = {row.probe: bytes(row.digest) for row in kept if row.probe in texts}
        for probe, document in checked.documents.items():
            if document is not None:
                texts[probe], digests[probe] = document.xml, document.digest
        positions[checked.upload.system_id] = len(documents), digests
        documents.append(texts)
    return Evaluated(live, True, verdicts.evaluate(documents, live), positions)


def _stored(changes: Sequence[tuple[CheckedUpload, Stored | None]]) -> dict[int, list[_Document]]:
    """The documents that stay, by node, of those nodes that have any."""
    wanted = [
        node.id
        for checked, node in changes
        if node and node.digests.keys() - checked.documents.keys()
    ]
    found: dict[int, list[_Document]] = {}
    if wanted:
        values = {"nodes": wanted, "max_bytes": MAX_BYTES}
        for row in sql.named(_Document, __file__, "stored_documents", values):
            found.setdefault(row.node, []).append(row)
    return found


def settle(
    held: HeldPartitions, changed: Sequence[Changed], evaluated: Evaluated, known: set[int] | None
) -> list[int]:
    """Store the verdicts, and return the partitions that still wait for workers. `known`: as for
    `matches.apply_held`. Relies on: the partitions are locked, and everything else that changed is
    written."""
    by_partition: dict[int, list[Changed]] = {}
    for item in changed:
        by_partition.setdefault(item.partition, []).append(item)
    found: dict[int, _Answers] = {}
    if evaluated.is_on:
        for partition, items in sorted(by_partition.items()):
            slots = _slots(items, evaluated.positions)
            if slots is not None:
                found[partition] = _Answers(slots.slots, _answers(slots, evaluated))
    if not found:
        return sorted(by_partition) if staleness.any_live() else []
    fresh = _flip(held, found, evaluated.live)
    if fresh is None:
        fresh = _apply(held, found, known)
    return [partition for partition in sorted(by_partition) if partition not in fresh]


def _flip(
    held: HeldPartitions, found: Mapping[int, _Answers], live: ExpressionSet
) -> set[int] | None:
    """Rule 1 in every partition, where that is all there is to do; else None, and nothing is
    changed: then matches are locked as `apply_held` does it. Where every live expression is fresh
    now. Where a partition is behind, or a rebuild is forced, its changed nodes are shown as they
    are, and its matches stay as old as they were."""
    differences: dict[int, Difference] = {}
    for partition, answers in found.items():
        place = held[partition]
        if not place.before or len(answers.slots) > MAX_COMPARED:
            return None
        difference = matches.differing(partition, place.before, answers.slots, answers.bits)
        if difference.version != live.version or difference.has_fresh:
            return None
        if difference.has_bare and place.before == place.settled_rev:
            return None
        differences[partition] = difference
    fresh = set()
    for partition, difference in differences.items():
        place, answers = held[partition], found[partition]
        others = difference.others
        if place.before == place.settled_rev and difference.answered:
            matches.flip(place, answers.slots, difference, answers.bits)
            if difference.answered == len(live.ids):
                fresh.add(partition)
        else:
            others = {**others, **difference.flips}
        matches.show(place, answers.slots, others, answers.bits)
    return fresh


def _apply(held: HeldPartitions, found: Mapping[int, _Answers], known: set[int] | None) -> set[int]:
    """Where every live expression is fresh now."""
    results = [
        result
        for partition, answers in found.items()
        for result in _results(held[partition], answers)
    ]
    # Under the lock, and so after whatever came between: what became live has no verdict.
    live = verdicts.current().ids
    applied = matches.apply_held(results, held, known)
    return {
        partition for partition in found if all((key, partition) in applied.keys for key in live)
    }


def _slots(items: Sequence[Changed], positions: Mapping[str, tuple[int, Digests]]) -> _Slots | None:
    """None where somebody else has stored another document of a node meanwhile."""
    found = _Slots([], [])
    for item in items:
        # A node whose documents stay keeps its verdicts.
        if item.digests is not None and item.is_same:
            continue
        position: int | None = None
        if item.digests:
            position, digests = positions.get(item.system_id, (None, None))
            if digests != item.digests:
                return None
        found.slots.append(item.slot)
        found.positions.append(position)
    return found


def _answers(found: _Slots, evaluated: Evaluated) -> dict[int, int]:
    """The verdicts of each expression that has them all, over the positions in `found.slots`."""
    if all(position is None for position in found.positions):
        return dict.fromkeys(evaluated.live.ids, 0)
    answers = {}
    for key, members in evaluated.members.items():
        bits = 0
        if members:
            for nth, position in enumerate(found.positions):
                if position is not None and members >> position & 1:
                    bits |= 1 << nth
        answers[key] = bits
    return answers


def _results(held: Held, answers: _Answers) -> list[Result]:
    # Before its first node a partition has no match, and every one would be empty.
    base = held.before or None
    mask = bitmap.from_slots(answers.slots) if held.before else None
    results = []
    for key, bits in answers.bits.items():
        chosen = (slot for nth, slot in enumerate(answers.slots) if bits >> nth & 1)
        members = bitmap.from_slots(chosen) if bits else 0
        results.append(Result(key, held.id, held.rev, members, base, mask))
    return results
