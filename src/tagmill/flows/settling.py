"""Changes settle where they happen: an upload's documents are evaluated before the locks are taken,
and their verdicts stored in the upload's own transaction.

Nothing about correctness depends on it. What is not settled here (several servers' worth of
documents at once, an expression that the kernel refuses or that takes long, a partition whose
matches are behind) is stale, and is left to the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from tagmill import sql
from tagmill.config import load
from tagmill.errors import DocumentDamaged
from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest
from tagmill.fleet.documents import CheckedUpload
from tagmill.fleet.partitions import Held, HeldPartitions
from tagmill.flows.writes import Changed, Stored
from tagmill.matches import comparing, flips, matches, staleness, verdicts
from tagmill.matches.comparing import Slots
from tagmill.matches.flips import Change
from tagmill.matches.matches import Result
from tagmill.matches.verdicts import ExpressionSet, Verdicts
from tagmill.tags import rebuilds
from tagmill_wire import bitmap

log = structlog.get_logger("tagmill.settling")

# More documents than these, which are stored already and belong to the nodes of an upload, are not
# read again for it.
MAX_BYTES = 16 * 1024 * 1024

Digests = Mapping[str, bytes]


class _Document(NamedTuple):
    """One probe of a node."""

    node: int
    probe: str
    xml: str
    digest: bytes


class Superseded(Exception):
    """What is live changed since it was asked for last: evaluate again."""


class _Row(NamedTuple):
    node: int
    probe: str
    xml: str | None
    packed: bytes | None
    dictionary: int | None
    size: int
    digest: bytes


@dataclass
class Evaluated:
    """What was found before the locks. `positions`: of a node's documents by system_id, with the
    digests of what was evaluated; they are compared again under the lock. `is_remembered`: the live
    set is that of an earlier change; it is compared, too."""

    live: ExpressionSet
    is_on: bool = True
    """Whether anything is to be settled here."""
    verdicts: Verdicts = verdicts.UNKNOWN
    positions: Mapping[str, tuple[int, Digests]] = field(default_factory=dict)
    is_remembered: bool = False


# There is no change.
NOTHING = Evaluated(verdicts.NONE, is_on=False)


def evaluate(
    changes: Sequence[tuple[CheckedUpload, Stored | None]], requests: int = 1
) -> Evaluated:
    """Evaluate the documents that these nodes will have, within the time of so many requests. Waits
    for no lock."""
    if not load().settle_seconds:
        return NOTHING
    remembered = verdicts.last()
    live = verdicts.current() if remembered is None else remembered
    is_remembered = remembered is not None
    if not live.plans or not verdicts.fits(len(changes), live, requests):
        return Evaluated(live, is_remembered=is_remembered)
    stored = _stored(changes)
    documents: list[dict[str, str]] = []
    positions: dict[str, tuple[int, Digests]] = {}
    for checked, node in changes:
        kept = stored.get(node.id, []) if node else []
        texts = {row.probe: row.xml for row in kept if row.probe not in checked.documents}
        digests = {row.probe: row.digest for row in kept if row.probe in texts}
        for probe, document in checked.documents.items():
            if document is not None:
                texts[probe], digests[probe] = document.xml, document.digest
        positions[checked.upload.system_id] = len(documents), digests
        documents.append(texts)
    found = verdicts.evaluate(documents, live, requests)
    return Evaluated(live, True, found, positions, is_remembered)


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
        for row in sql.bound(_Row, __file__, "stored_documents", values):
            found.setdefault(row.node, []).extend(_read(row))
    return found


def _read(row: _Row) -> Iterator[_Document]:
    """Nothing for one that is damaged: then the node's digests are others than those that count,
    and it is left to workers, who report it."""
    stored = AtRest(row.xml, row.packed, row.dictionary, row.size)
    try:
        yield _Document(row.node, row.probe, at_rest.unpack(stored), bytes(row.digest))
    except DocumentDamaged as error:
        log.error(error.detail, action="damaged", node=row.node, probe=row.probe)


def settle(
    held: HeldPartitions, changed: Sequence[Changed], evaluated: Evaluated, known: set[int] | None
) -> list[int]:
    """Store the verdicts, and return the partitions that still wait for workers. `known`: as for
    `matches.apply_held`. Relies on: the partitions are locked, and everything else that changed is
    written. Raises Superseded."""
    by_partition: dict[int, list[Changed]] = {}
    for item in changed:
        by_partition.setdefault(item.partition, []).append(item)
    found: dict[int, Slots] = {}
    if evaluated.is_on:
        for partition, items in sorted(by_partition.items()):
            slots = _slots(items, evaluated.positions)
            # Without any verdict, all there is to do is the workers'.
            if slots and (_verdicts(slots, evaluated).ids or not evaluated.live.ids):
                found[partition] = slots
    if not found:
        if evaluated.is_remembered:
            _look(evaluated, verdicts.current().version)
        return sorted(by_partition) if staleness.any_live() else []
    fresh = _flip(held, found, evaluated)
    if fresh is None:
        fresh = _apply(held, found, evaluated, known)
    return [partition for partition in sorted(by_partition) if partition not in fresh]


def _look(evaluated: Evaluated, version: str | None) -> None:
    """Under the lock: raises Superseded where what was remembered is not what is live."""
    if evaluated.is_remembered and version != evaluated.live.version:
        verdicts.forget(evaluated.live)
        raise Superseded


def _flip(
    held: HeldPartitions, found: Mapping[int, Slots], evaluated: Evaluated
) -> set[int] | None:
    """Rule 1 in every partition, where that is all there is to do; else None, and nothing is
    changed: then matches are locked as `apply_held` does it. Where every live expression is fresh
    now. Where a partition is behind, or a rebuild is forced, its changed nodes are shown as they
    are, and its matches stay as old as they were."""
    if not all(held[partition].before for partition in found):
        return None
    of = {
        partition: comparing.Changed(held[partition].before, slots, _verdicts(slots, evaluated))
        for partition, slots in found.items()
    }
    differences = comparing.differing(of)
    for partition, difference in differences.items():
        place = held[partition]
        if difference.version != evaluated.live.version or difference.has_fresh:
            return None
        if difference.has_bare and place.before == place.settled_rev:
            return None
    fresh = set()
    changes = []
    for partition, difference in differences.items():
        place = held[partition]
        if place.before == place.settled_rev and difference.answered:
            place.settled_rev = place.rev
            if len(difference.answered) == len(evaluated.live.ids):
                fresh.add(partition)
        changes += [
            Change(expression, partition, place.before, place.rev, flip)
            for expression, flip in sorted({**difference.flips, **difference.others}.items())
        ]
    flips.show(changes, held)
    return fresh


def _apply(
    held: HeldPartitions,
    found: Mapping[int, Slots],
    evaluated: Evaluated,
    known: set[int] | None,
) -> set[int]:
    """Where every live expression is fresh now. Raises Superseded."""
    results = [
        result
        for partition, slots in found.items()
        for result in _results(held[partition], slots, evaluated)
    ]
    # Under the lock, and so after whatever came between: what became live has no verdict.
    now = verdicts.current()
    _look(evaluated, now.version)
    live = now.ids
    applied = matches.apply_held(results, held, known)
    if any(not held[partition].before for partition in found):
        # A tag may have waited for a partition without a node, which now has matches.
        rebuilds.look_again(list(live))
    return {partition for partition in found if applied.of(partition).issuperset(live)}


def _slots(items: Sequence[Changed], positions: Mapping[str, tuple[int, Digests]]) -> Slots | None:
    """None where somebody else has stored another document of a node meanwhile."""
    slots: list[int] = []
    found: list[int | None] = []
    for item in items:
        # A node whose documents stay keeps its verdicts.
        if item.digests is not None and item.is_same:
            continue
        position: int | None = None
        if item.digests:
            position, digests = positions.get(item.system_id, (None, None))
            if digests != item.digests:
                return None
        slots.append(item.slot)
        found.append(position)
    return Slots(slots, found)


def _verdicts(slots: Slots, evaluated: Evaluated) -> Verdicts:
    """Without documents, no expression holds, whatever the kernel makes of it."""
    if all(position is None for position in slots.positions):
        return Verdicts(evaluated.live.ids)
    return evaluated.verdicts


def _bits(slots: Slots, known: Verdicts) -> dict[int, int]:
    """The verdicts of each expression, as a bitmap over the places in `slots`."""
    bits = {}
    for key, members in known.by_expression().items():
        bits[key] = 0
        if members:
            for nth, position in enumerate(slots.positions):
                if position is not None and members >> position & 1:
                    bits[key] |= 1 << nth
    return bits


def _results(held: Held, slots: Slots, evaluated: Evaluated) -> list[Result]:
    # Before its first node a partition has no match, and every one would be empty.
    base = held.before or None
    mask = bitmap.from_slots(slots.slots) if held.before else None
    results = []
    for key, bits in _bits(slots, _verdicts(slots, evaluated)).items():
        chosen = (slot for nth, slot in enumerate(slots.slots) if bits >> nth & 1)
        members = bitmap.from_slots(chosen) if bits else 0
        results.append(Result(key, held.id, held.rev, members, base, mask))
    return results
