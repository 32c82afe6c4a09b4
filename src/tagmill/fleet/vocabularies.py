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

from tagmill import sql
from tagmill.fleet import incarnation, models
from tagmill.fleet.models import Partition
from tagmill_expressions import vocabulary as words
from tagmill_wire import zstd

log = structlog.get_logger("tagmill.vocabularies")

# The size of one part when it is unpacked. The largest vocabulary that can be kept has 10 MB.
MAX_BYTES = 16 * 1024 * 1024
# The size of all parts of one completion. A part is made for each page, and mostly has 100 kB.
MAX_SUM_BYTES = 64 * 1024 * 1024
MAX_PARTS = 4096
ZSTD_LEVEL = 3
# What the column holds.
MAX_DOCUMENTS = 2**31 - 1
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
MAX_REPEATS = 2
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
    if row.documents > MAX_REPEATS * partition.node_count + REPEATS_ALLOWED:
        return -1
    return None if row.rev >= partition.rev else row.rev


class Learnt(NamedTuple):
    """What a completion says of a partition's words, merged with what was stored: see `read`."""

    partition: int
    rev: int
    base: int
    stored_rev: int | None
    """The rev of the stored vocabulary that it was merged with, or replaces; None without one."""
    documents: int
    data: bytes | None
    """The value of the column; None for nothing but deletions, so that the stored one stays."""


class Budget:
    """Bounds what one completion may unpack: parts are unpacked until it is spent."""

    def __init__(self) -> None:
        self._parts, self._bytes = MAX_PARTS, MAX_SUM_BYTES

    def unpack(self, part: str) -> words.Vocabulary:
        """Raises ValueError for a part too many, and what a part that cannot be read raises."""
        self._parts -= 1
        if self._parts < 0:
            raise ValueError(f"more than {MAX_PARTS} parts")
        data = zstd.unpack(base64.b64decode(part, validate=True), min(MAX_BYTES, self._bytes))
        self._bytes -= len(data)
        return words.Vocabulary.load(data)


def read(
    partition: int, rev: int, base: int | None, parts: Sequence[str], budget: Budget
) -> Learnt | None:
    """What a worker has learnt: of everything (`base` -1), or of what changed after `base`.

    What cannot be read, or does not fit what is stored, is left out: it will be asked for again.
    It takes up to a second: call it before any lock is taken, and `learn` under the partition's.
    """
    if base is None:
        return None
    row = models.Vocabulary.objects.filter(partition=partition, version=words.VERSION).first()
    if not _fits(None if row is None else row.rev, rev, base):
        return None
    stored = None if row is None else row.rev
    if base >= 0 and not parts:
        return Learnt(partition, rev, base, stored, 0, None)
    learnt = words.Vocabulary()
    try:
        for part in parts:
            learnt.merge(budget.unpack(part))
        if base >= 0 and row is not None:
            learnt.merge(_unpack(bytes(row.data)))
        data = pack(learnt)
    except UNREADABLE as error:
        log.warning(
            "a vocabulary is left out", action="learn", partition=partition, error=repr(error)
        )
        return None
    return Learnt(partition, rev, base, stored, learnt.documents, data)


def _fits(stored: int | None, rev: int, base: int) -> bool:
    if base >= 0 and (stored is None or stored < base):
        return False
    return stored is None or not (stored > rev or (stored == rev and base >= 0))


def learn(learnt: Learnt) -> None:
    """Store what was read, unless another completion came first.

    Relies on: the caller has locked the partition, which is there.
    """
    rows = models.Vocabulary.objects.filter(partition=learnt.partition, version=words.VERSION)
    stored = rows.values_list("rev", flat=True).first()
    # A vocabulary of all documents (base -1) depends on nothing that was stored.
    if not _fits(stored, learnt.rev, learnt.base):
        return
    if learnt.base >= 0 and stored != learnt.stored_rev:
        return
    if learnt.data is None:
        rows.update(rev=learnt.rev)
        return
    models.Vocabulary.objects.update_or_create(
        partition_id=learnt.partition,
        defaults={
            "rev": learnt.rev,
            "version": words.VERSION,
            "documents": learnt.documents,
            "data": learnt.data,
        },
    )


def _unpack(data: bytes) -> words.Vocabulary:
    return words.Vocabulary.load(zstd.unpack(data, MAX_BYTES))


def pack(vocabulary: words.Vocabulary) -> bytes:
    """What the columns hold. Raises ValueError and TypeError."""
    if not 0 <= vocabulary.documents <= MAX_DOCUMENTS:
        raise ValueError(f"{vocabulary.documents} documents")
    # Names that do not sort, and numbers that are none, show only here.
    dumped = vocabulary.dump()
    if len(dumped) > MAX_BYTES:
        raise ValueError(f"{len(dumped)} bytes; {MAX_BYTES} is the limit")
    return zstandard.compress(dumped, ZSTD_LEVEL)


# -- the whole fleet's -----------------------------------------------------------------------------


class _Stored(NamedTuple):
    """Partitions with a vocabulary, the sum of their revs and the last of them; partitions without
    one and partitions whose one is behind; and the documents learnt from."""

    incarnation: UUID | None
    partitions: int
    revs: int
    last: int
    missing: int
    behind: int
    documents: int


@dataclass
class _Merged:
    """`state`: partitions, revs and last of what was stored then; `revs` are by
    partition, and mean something in the incarnation alone."""

    incarnation: UUID | None = None
    state: tuple[int, ...] = ()
    vocabulary: words.Vocabulary | None = None
    revs: Mapping[int, int] = field(default_factory=dict)


_lock = threading.Lock()
_merged = _Merged()


def fleet() -> Known:
    """One query while nothing has changed. Of the threads that find a change, one merges."""
    (stored,) = sql.named(_Stored, __file__, "vocabulary_state", {"version": words.VERSION})
    if stored.missing or not stored.partitions:
        return Known(None, stored.partitions, stored.missing, stored.behind)
    state = (stored.partitions, stored.revs, stored.last)
    uuid = stored.incarnation or incarnation.current()
    with _lock:
        if _merged.incarnation != uuid:
            _merged.incarnation, _merged.state = uuid, ()
            _merged.vocabulary, _merged.revs = None, {}
        if _merged.state != state:
            _refresh(stored.documents)
            _merged.state = state
        return Known(_merged.vocabulary, stored.partitions, stored.missing, stored.behind)


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
        and before.documents < MAX_REPEATS * documents
    )
    if is_patched and before is not None:
        # A new one: requests may be reading the old one.
        merged.merge(before)
        rows = rows.filter(partition__in=changed)
    for data in rows.values_list("data", flat=True).iterator(FEW_PARTITIONS):
        merged.merge(_unpack(bytes(data)))
    _merged.vocabulary, _merged.revs = merged, revs
