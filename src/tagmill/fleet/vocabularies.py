"""Vocabularies: learnt by workers, kept with their partitions, merged for lint.

A vocabulary at `rev` knows every name and value of the partition's documents as of that rev, and
some that were there before. What changed since is added by whoever evaluates it.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import structlog
import zstandard

from expressions import vocabulary as words
from tagmill import sql
from tagmill.fleet import incarnation, models
from tagmill.fleet.models import Partition
from wire import zstd

log = structlog.get_logger("tagmill.vocabularies")

# Of one part when it is unpacked. A vocabulary of the most that one can keep has 10 MB.
MOST_BYTES = 64 * 1024 * 1024
ZSTD_LEVEL = 3
# What the column holds.
MOST_DOCUMENTS = 2**31 - 1
# What JSON of another shape, and bytes that are no base64, zstd or zlib, may raise. ValueError has
# those of base64 and JSON among its kind.
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    zlib.error,
)
# Each change of a node counts its documents again, and what vanished with it stays: once as much
# was learnt twice over, the partition is learnt anew. The constant spares small ones.
MOST_REPEATS = 2
REPEATS_ALLOWED = 64
# So few partitions are merged anew in 20 ms; of more, only those that have changed.
FEW_PARTITIONS = 8


class Known(NamedTuple):
    """`vocabulary`: None while a partition's is missing, which any lint of names needs."""

    vocabulary: words.Vocabulary | None
    partitions: int
    missing: int
    """Partitions with nodes whose documents nobody has learnt."""
    behind: int
    """Partitions with changes that nobody has learnt yet."""


# -- learning --------------------------------------------------------------------------------------


def lagging() -> list[int]:
    """Partitions that have something to learn, but for those without a document."""
    filled = Partition.objects.filter(node_count__gt=0).values_list("id", flat=True)
    return sorted(after(list(filled)))


def after(partitions: Collection[int]) -> dict[int, int]:
    """{partition: the rev after which its vocabulary is to be learnt, or -1 for everything}, of
    those that have something to learn."""
    found = (
        Partition.objects.filter(id__in=partitions)
        .select_related("vocabulary")
        .defer("vocabulary__data")
    )
    revs = {partition.id: _after(partition) for partition in found}
    return {partition: rev for partition, rev in revs.items() if rev is not None}


def _after(partition: Partition) -> int | None:
    row = getattr(partition, "vocabulary", None)
    if row is None or row.version != words.VERSION:
        return -1
    if row.documents > MOST_REPEATS * partition.node_count + REPEATS_ALLOWED:
        return -1
    return None if row.rev >= partition.rev else row.rev


def learn(partition: Partition, rev: int, base: int | None, parts: Sequence[str]) -> None:
    """Store what a worker has learnt: of everything (`base` -1), or of what changed after `base`.

    What cannot be read, or does not fit what is stored, is left out: it will be asked for again.
    Relies on: the caller has locked the partition.
    """
    if base is None:
        return
    row = models.Vocabulary.objects.filter(partition=partition, version=words.VERSION).first()
    if base >= 0 and (row is None or row.rev < base):
        return
    if row is not None and (row.rev > rev or (row.rev == rev and base >= 0)):
        return
    learnt = words.Vocabulary()
    try:
        for part in parts:
            learnt.merge(_unpack(base64.b64decode(part, validate=True)))
        if base >= 0 and row is not None and parts:
            learnt.merge(_unpack(bytes(row.data)))
        data = _pack(learnt)
    except UNREADABLE as error:
        log.warning(
            "a vocabulary is left out", action="learn", partition=partition.id, error=repr(error)
        )
        return
    if base >= 0 and not parts:
        # Nothing but deletions.
        models.Vocabulary.objects.filter(partition=partition).update(rev=rev)
        return
    models.Vocabulary.objects.update_or_create(
        partition=partition,
        defaults={
            "rev": rev,
            "version": words.VERSION,
            "documents": learnt.documents,
            "data": data,
        },
    )


def _unpack(data: bytes) -> words.Vocabulary:
    return words.Vocabulary.load(zstd.unpack(data, MOST_BYTES))


def _pack(vocabulary: words.Vocabulary) -> bytes:
    """What `_unpack` takes, and the columns hold. Raises ValueError and TypeError."""
    if not 0 <= vocabulary.documents <= MOST_DOCUMENTS:
        raise ValueError(f"{vocabulary.documents} documents")
    # Names that do not sort, and numbers that are none, show only here.
    dumped = vocabulary.dump()
    if len(dumped) > MOST_BYTES:
        raise ValueError(f"{len(dumped)} bytes; {MOST_BYTES} is the limit")
    return zstandard.compress(dumped, ZSTD_LEVEL)


# -- the whole fleet's -----------------------------------------------------------------------------


@dataclass
class _Merged:
    """`state`: of the database, as vocabulary_state.sql tells it; `revs` by partition, which mean
    something in the incarnation alone."""

    incarnation: UUID | None = None
    state: tuple[int, ...] = ()
    vocabulary: words.Vocabulary | None = None
    revs: Mapping[int, int] = field(default_factory=dict)


_lock = threading.Lock()
_merged = _Merged()


def fleet() -> Known:
    """One query while nothing has changed. Of the threads that find a change, one merges."""
    ((uuid, count, revs, last, missing, behind, documents),) = sql.rows(
        __file__, "vocabulary_state", {"version": words.VERSION}
    )
    if missing or not count:
        return Known(None, count, missing, behind)
    state = (count, revs, last)
    uuid = uuid or incarnation.current()
    with _lock:
        if _merged.incarnation != uuid:
            _merged.incarnation, _merged.state = uuid, ()
            _merged.vocabulary, _merged.revs = None, {}
        if _merged.state != state:
            _refresh(documents)
            _merged.state = state
        return Known(_merged.vocabulary, count, missing, behind)


def _refresh(documents: int) -> None:
    rows = models.Vocabulary.objects.filter(version=words.VERSION)
    revs = dict(rows.values_list("partition_id", "rev"))
    before, known = _merged.vocabulary, _merged.revs
    changed = [key for key, rev in revs.items() if key not in known or known[key] != rev]
    merged = words.Vocabulary()
    is_patched = (
        before is not None
        and len(revs) > FEW_PARTITIONS
        and revs.keys() >= set(known)
        and len(changed) < len(revs) // 2
        and before.documents < MOST_REPEATS * documents
    )
    if is_patched and before is not None:
        # A new one: requests may be reading the old one.
        merged.merge(before)
        rows = rows.filter(partition__in=changed)
    for data in rows.values_list("data", flat=True).iterator(FEW_PARTITIONS):
        merged.merge(_unpack(bytes(data)))
    _merged.vocabulary, _merged.revs = merged, revs
