"""Dictionaries for documents at rest: trained on a cluster's own documents, one for each probe.

Now and then a sample of a cluster's documents is looked at. A probe that has no dictionary gets
one; one whose dictionary packs clearly worse than it did gets another, if that does clearly better.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog
import zstandard
from django.db import transaction

from tagmill import sql
from tagmill.errors import DocumentDamaged
from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest, Dictionary

log = structlog.get_logger("tagmill.dictionaries")

# A dictionary of fewer documents fits these and no others.
MIN_DOCUMENTS = 32
# Between two looks at a cluster.
LOOK_SECONDS = 600
# The sample: nodes, and bytes of XML of all their documents.
MAX_NODES = 512
MAX_BYTES = 24 * 1024 * 1024
# Training takes some 30 ms and 4 MiB of memory a MiB.
MAX_TRAINING_BYTES = 8 * 1024 * 1024
# No single document is to be most of what is trained on.
MAX_DOCUMENT_BYTES = 256 * 1024
# One of so many documents is left out of training, to judge by.
JUDGED = 4
# What zstd leaves to private use. By chance, so that two clusters with the same documents have
# dictionaries of their own.
DICTIONARY_IDS = range(1 << 15, 1 << 31)
# Where that number is in a dictionary, little-endian (RFC 8878, section 5).
NUMBER_BEGIN, NUMBER_END = 4, 8
# Generated documents of 19 kB take 620 bytes with 64 KiB, 512 with 112 KiB, and no fewer with more.
DICTIONARY_BYTES = 112 * 1024
# Few documents make a small dictionary, such a part of what it is trained on at most: one that is
# too large for its sample packs worse than one of half its size.
SAMPLE_OF_DICTIONARY = 40
MIN_DICTIONARY_BYTES = 1024
# The ratio has fallen when it is so many times what it was.
WORSE = 1.25
# A new dictionary is worth packing everything anew when it brings the ratio to this part of it.
BETTER = 0.9
# An unused dictionary stays for who may be reading with it.
FORGET_SECONDS = 600


class Judged(NamedTuple):
    """What is made of the sample of one probe. `ratio`: packed bytes a byte of XML, with the
    dictionary of today. `is_tried`: another was trained; `adopted`: it is the better one."""

    ratio: float | None
    is_tried: bool = False
    adopted: Dictionary | None = None
    adopted_ratio: float = 1.0


def due(seconds: int = LOOK_SECONDS) -> list[tuple[int, int]]:
    """Clusters that were not looked at for so long, and how many nodes they have."""
    values = {"documents": MIN_DOCUMENTS, "seconds": seconds}
    return [(key, nodes) for key, nodes in sql.rows(__file__, "clusters_to_look_at", values)]


def look(cluster: int, nodes: int, seconds: int = LOOK_SECONDS) -> bool:
    """Whether documents of the cluster are to be packed anew: a dictionary was adopted, or some of
    the sample are not packed with that of today. Nothing where somebody else has just looked."""
    claim = {"cluster": cluster, "nodes": nodes, "seconds": seconds}
    if not sql.rows(__file__, "claim_look", claim):
        return False
    is_behind = False
    at_rest.forget()
    for probe, stored in _sample(cluster).items():
        current = at_rest.current(cluster, probe)
        before = None if current is None else _ratio_before(current)
        texts = _readable(stored)
        found = judge(texts, current, before)
        if found.adopted is not None:
            _adopt(cluster, probe, found)
            is_behind = True
        elif current is not None and found.ratio is not None:
            _note(current, found, before)
            is_behind |= _is_behind(stored, current)
    return is_behind


def judge(documents: Sequence[bytes], current: Dictionary | None, before: float | None) -> Judged:
    """Train where that may be worth it. `before`: the ratio that the dictionary of today had."""
    if len(documents) < MIN_DOCUMENTS:
        return Judged(None)
    shown = documents[::JUDGED]
    now = None if current is None else ratio(shown, current)
    if now is not None and before is not None and now <= before * WORSE:
        return Judged(now)
    made = train([item for number, item in enumerate(documents) if number % JUDGED])
    would = 1.0 if made is None else ratio(shown, made)
    if would > BETTER * (1.0 if now is None else now):
        return Judged(now, is_tried=True)
    return Judged(now, True, made, would)


def ratio(documents: Sequence[bytes], dictionary: Dictionary) -> float:
    packed = sum(len(dictionary.pack(item)) for item in documents)
    return packed / max(1, sum(map(len, documents)))


def train(documents: Sequence[bytes]) -> Dictionary | None:
    """A dictionary of what they have in common; None where zstd finds too little. Bounded in time
    and memory by what is looked at."""
    samples: list[Any] = []
    size = 0
    for item in documents:
        cut = item[:MAX_DOCUMENT_BYTES]
        if size + len(cut) > MAX_TRAINING_BYTES:
            break
        samples.append(cut)
        size += len(cut)
    wanted = min(DICTIONARY_BYTES, size // SAMPLE_OF_DICTIONARY)
    if wanted < MIN_DICTIONARY_BYTES:
        return None
    try:
        made = zstandard.train_dictionary(
            wanted, samples, level=at_rest.LEVEL, dict_id=secrets.choice(DICTIONARY_IDS)
        )
    except zstandard.ZstdError as error:
        log.info("no dictionary", action="train", documents=len(samples), reason=str(error))
        return None
    return Dictionary(made.as_bytes())


def forget() -> int:
    """Delete dictionaries that no document names any more; how many. Reads every document's row."""
    with transaction.atomic():
        return sql.run(__file__, "forget_dictionaries", {"seconds": FORGET_SECONDS})


def _sample(cluster: int) -> dict[str, list[AtRest]]:
    values = {"cluster": cluster, "nodes": MAX_NODES, "max_bytes": MAX_BYTES}
    found: dict[str, list[AtRest]] = {}
    for probe, stored in sql.bound(_sampled, __file__, "sample_documents", values):
        found.setdefault(probe, []).append(stored)
    return found


def _sampled(probe: str, *columns: Any) -> tuple[str, AtRest]:
    return probe, AtRest(*columns)


def _readable(stored: Sequence[AtRest]) -> list[bytes]:
    found = []
    for item in stored:
        try:
            found.append(at_rest.unpack(item).encode())
        except DocumentDamaged as error:
            log.warning("not in the sample", action="train", error=error.detail)
    return found


def _is_behind(stored: Sequence[AtRest], current: Dictionary) -> bool:
    return any(
        item.xml is None or len(current.pack(item.xml.encode())) < item.size
        for item in stored
        if item.dictionary != current.id
    )


def _ratio_before(current: Dictionary) -> float | None:
    return next(iter(sql.values(__file__, "dictionary_ratio", {"id": current.id})), None)


def renumbered(made: Dictionary) -> Dictionary:
    """The same under another of zstd's numbers, and so under another id of ours."""
    number = secrets.choice(DICTIONARY_IDS).to_bytes(NUMBER_END - NUMBER_BEGIN, "little")
    return Dictionary(made.data[:NUMBER_BEGIN] + number + made.data[NUMBER_END:])


def _adopt(cluster: int, probe: str, found: Judged) -> None:
    made = found.adopted
    if made is None:
        return
    values = {"cluster": cluster, "probe": probe, "ratio": found.adopted_ratio}
    # No cluster packs with another's, nor with what was left by one that is gone.
    while not sql.run(__file__, "adopt_dictionary", {**values, "id": made.id, "data": made.data}):
        made = renumbered(made)
    at_rest.forget()
    log.info(
        "a dictionary for documents",
        action="adopt",
        cluster=cluster,
        probe=probe,
        bytes=len(made.data),
        ratio=round(found.adopted_ratio, 4),
        ratio_before=found.ratio and round(found.ratio, 4),
    )


def _note(current: Dictionary, found: Judged, before: float | None) -> None:
    """What the ratio is measured against next: it creeps up only where training did not help."""
    now = found.ratio
    is_new = before is None or now is None or now < before or found.is_tried
    values = {"id": current.id, "now": now, "ratio": now if is_new else before}
    sql.run(__file__, "note_ratio", values)
