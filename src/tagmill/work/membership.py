"""Who owns which partition now: `tagmill.work.placement` for the workers that live.

A worker says what it can hold, and is told its share; it warms that, says that it is ready, and is
preferred for it from then on. One that leaves, or is silent, loses its share to the others. Each
change has an epoch, which answers to leases and heartbeats name.

It is a preference: whoever is idle may be leased anything, and every result is accepted by
compare-and-set. What is stored is read by each server process once an epoch.

Where more than half of a cluster's owners fall silent at once, it is the network, or the database,
rather than the workers: for HOLD_SECONDS nothing there gets another owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import Invalid, WorkerGone
from tagmill.fleet import incarnation
from tagmill.work import placement
from tagmill.work.models import Placement, Worker
from tagmill.work.placement import Member, Place
from tagmill.work.policy import SpentQuotas
from tagmill_wire.messages import Share, ShareRequest

log = structlog.get_logger("tagmill.membership")

HOLD_SECONDS = 60
# More than any machine can hold; and sums of it are still numbers of the database.
MAX_ROOM = 2**50


class _Row(NamedTuple):
    cluster: int
    worker: int
    uuid: UUID
    room: int
    is_ready: bool
    is_silent: bool


class ShareCount(NamedTuple):
    """How many partitions a worker is to hold, and how many it is preferred for: fewer while it
    warms them."""

    cluster: str
    worker: str
    owned: int
    counting: int


class _Stored(NamedTuple):
    """A cluster's placement. `silent_seconds`: for how long too many have been silent."""

    cluster: int
    partitions: list[int]
    owners: list[int]
    counting: list[int]
    silent_since: datetime | None
    silent_seconds: float
    epoch: int

    def places(self, heirs: Mapping[int, int]) -> dict[int, Place]:
        """By partition. `heirs`: workers in whose place another one has come."""
        both = zip(self.owners, self.counting, strict=True)
        found = [Place(heirs.get(owner, owner), heirs.get(meant, meant)) for owner, meant in both]
        return dict(zip(self.partitions, found, strict=True))


class Owned(NamedTuple):
    """The partitions that a worker is preferred for, and those that it is to hold. Until it has
    warmed the second, another one is preferred for them."""

    counting: frozenset[int] = frozenset()
    share: frozenset[int] = frozenset()

    def first(self, holds: Iterable[int]) -> frozenset[int]:
        """What it is best leased when it asks for work. What is on its way to another worker only
        where it is here still: nobody should fetch it for the time until then."""
        return self.share | self.counting.intersection(holds)


class _Known(NamedTuple):
    """What this process has read, by worker."""

    incarnation: str
    epoch: int
    owns: dict[int, Owned]


_NOTHING = Owned()
_known = _Known("", 0, {})


def owned(worker: int, now: SpentQuotas) -> Owned:
    """Asks the database once an epoch."""
    global _known  # noqa: PLW0603 - one for the process, replaced as a whole
    if not now.epoch:
        return _NOTHING
    if now.epoch > _known.epoch or now.incarnation != _known.incarnation:
        _known = _read(now.incarnation)
    return _known.owns.get(worker, _NOTHING)


def epoch() -> int:
    """0 where nobody owns anything."""
    found: int = sql.values(__file__, "epoch", {})[0]
    return found


def share(worker: Worker, said: ShareRequest) -> Share:
    """What the worker is to hold from now on, once others have been given theirs. Raises Invalid,
    WorkerGone."""
    if not 0 <= said.room <= MAX_ROOM:
        raise Invalid(f"must be 0 to {MAX_ROOM} bytes", field="room")
    former = _uuid(said.former)
    with transaction.atomic():
        locks.fleet()
        both = Q(id=worker.id) | Q(uuid=former, token=worker.token_id)
        rows = {row.id: row for row in locks.rows(Worker.objects.filter(both))}
        if worker.id not in rows or worker.incarnation != incarnation.noted():
            raise WorkerGone("no such worker, or of another incarnation: register again")
        before = [key for key in rows if key != worker.id]
        Worker.objects.filter(id__in=before).update(room=0)
        Worker.objects.filter(id=worker.id).update(
            room=said.room, is_ready=said.ready, last_heartbeat=Now()
        )
        locks.membership()
        _change(dict.fromkeys(before, worker.id))
        found = _stored()
    theirs = [
        partition
        for item in found
        for partition, owner in zip(item.partitions, item.owners, strict=True)
        if owner == worker.id
    ]
    return Share(max((item.epoch for item in found), default=0), theirs)


def owners() -> dict[int, int]:
    """The worker that is to hold each partition."""
    return {
        partition: owner
        for item in _stored()
        for partition, owner in zip(item.partitions, item.owners, strict=True)
    }


def refresh() -> bool:
    """Look who lives, and which partitions there are; whether anything has another owner."""
    if not _due({}):
        return False
    with transaction.atomic():
        locks.fleet()
        locks.membership()
        return _change({})


def counts() -> list[ShareCount]:
    """Every worker that owns anything, for metrics."""
    return sql.named(ShareCount, __file__, "share_counts", {})


# -- what is stored --------------------------------------------------------------------------------


class _Due(NamedTuple):
    """A cluster's placement as it is to be. `is_moved`: the epoch is another one with it."""

    cluster: int
    places: dict[int, Place]
    is_silent: bool
    was_silent: bool
    is_moved: bool


def _stored() -> list[_Stored]:
    return sql.named(_Stored, __file__, "placed_partitions", {})


def _read(named: str) -> _Known:
    counting: dict[int, list[int]] = defaultdict(list)
    shares: dict[int, list[int]] = defaultdict(list)
    stored = _stored()
    for item in stored:
        for partition, worker in zip(item.partitions, item.counting, strict=True):
            counting[worker].append(partition)
        for partition, worker in zip(item.partitions, item.owners, strict=True):
            shares[worker].append(partition)
    owns = {
        worker: Owned(frozenset(counting[worker]), frozenset(shares[worker]))
        for worker in counting.keys() | shares.keys()
    }
    return _Known(named, max((item.epoch for item in stored), default=0), owns)


def _change(heirs: Mapping[int, int]) -> bool:
    """Relies on: the fleet and the membership are locked."""
    due = _due(heirs)
    moved = [item for item in due if item.is_moved]
    number = sql.values(__file__, "next_epoch", {})[0] if moved else 0
    for item in due:
        values: dict[str, Any] = {
            "partitions": list(item.places),
            "owners": [place.owner for place in item.places.values()],
            "counting": [place.counts for place in item.places.values()],
        }
        if item.is_moved:
            values["epoch"] = number
        if item.is_silent != item.was_silent:
            values["silent_since"] = Now() if item.is_silent else None
        changed = Placement.objects.filter(cluster=item.cluster).update(**values)
        if not changed:
            Placement.objects.create(cluster_id=item.cluster, **values)
    if moved:
        clusters = [item.cluster for item in moved]
        log.info("partitions have other owners", action="place", epoch=number, clusters=clusters)
    return bool(moved)


def _due(heirs: Mapping[int, int]) -> list[_Due]:
    """The clusters whose placement is to be another."""
    stored = {item.cluster: item for item in _stored()}
    values = {"seconds": load().lease_seconds}
    rows: dict[int, list[_Row]] = defaultdict(list)
    for row in sql.named(_Row, __file__, "members", values):
        rows[row.cluster].append(row)
    partitions: dict[int, list[int]] = dict(sql.rows(__file__, "numbered_partitions", {}))
    found = []
    for cluster in stored.keys() | rows.keys():
        known = stored.get(cluster)
        now = _placed(cluster, known, rows[cluster], partitions.get(cluster, []), heirs)
        if now is not None:
            found.append(now)
    return sorted(found)


def _placed(
    cluster: int,
    known: _Stored | None,
    rows: list[_Row],
    partitions: Iterable[int],
    heirs: Mapping[int, int],
) -> _Due | None:
    """None where the placement stays as it is."""
    before = {} if known is None else known.places(heirs)
    silent = _silent(before, rows)
    if silent and (known is None or known.silent_seconds < HOLD_SECONDS):
        # Whoever comes again takes the place that it had; nothing else changes.
        places = before
    else:
        members = [
            Member(row.worker, row.uuid.bytes, row.room, row.is_ready)
            for row in rows
            if not row.is_silent
        ]
        places = placement.place(partitions, members, before)
        silent = False
    is_moved = places != ({} if known is None else known.places({}))
    was_silent = known is not None and known.silent_since is not None
    if not is_moved and silent == was_silent:
        return None
    return _Due(cluster, places, silent, was_silent, is_moved)


def _silent(before: Mapping[int, Place], rows: list[_Row]) -> bool:
    """Whether more than half of the owners are silent. Who was forgotten since is; who has left, or
    has lost its token, is not."""
    owners = {item.owner for item in before.values()}
    living = {row.worker for row in rows if not row.is_silent}
    lost = owners - living
    if 2 * len(lost) <= len(owners):
        return False
    heard = {row.worker for row in rows}
    there = set(Worker.objects.filter(id__in=lost - heard).values_list("id", flat=True))
    return 2 * len(lost - there) > len(owners)


def _uuid(text: str | None) -> UUID | None:
    """Raises Invalid."""
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise Invalid("must be the uuid of a worker", field="former") from None
