"""The only writer of nodes and documents (beside the generator's COPY loader).

A change raises its partition's `rev` once a transaction, under the partition's lock, and stamps the
nodes with it; an upload that changes nothing takes no lock and raises nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog
from django.db import IntegrityError, InterfaceError, OperationalError, transaction

from tagmill import sql
from tagmill.errors import (
    AlreadyExists,
    DatabaseUnavailable,
    Invalid,
    NotFound,
    TagmillError,
)
from tagmill.fleet import at_rest, clusters
from tagmill.fleet.at_rest import AtRest
from tagmill.fleet.documents import CheckedUpload, Upload, Verdict, check, surely_parsed
from tagmill.fleet.models import Cluster
from tagmill.fleet.partitions import ClusterGone, HeldPartitions, reserve
from tagmill.flows import settling
from tagmill.flows.settling import Evaluated
from tagmill.flows.writes import DocumentKey, Packed, Stored, Writes, check_probes
from tagmill.work import policy, queue

__all__ = [
    "Deletion",
    "Prepared",
    "Upload",
    "Verdict",
    "delete",
    "delete_all",
    "delete_requests",
    "finish",
    "prepare",
    "store",
    "store_checked",
    "store_requests",
]

log = structlog.get_logger("tagmill.ingest")

# A node is moved, deleted or made by somebody else between our look at it and our lock. It takes
# that many coincidences in a row to give up.
ATTEMPTS = 8


# The database did not do what it was asked: what else is asked now would fare no better.
OUTAGE = (OperationalError, InterfaceError)


class Deletion(NamedTuple):
    """A node that is to be deleted. `expects` as in Upload."""

    system_id: str
    expects: Callable[[Any], None] | None = None


class _Overtaken(Exception):
    """Somebody else changed what we looked at before we had the lock: look again."""


@dataclass(frozen=True)
class _Change:
    """What one upload does: `node` is None for a new one; `cluster_id` is where it will be."""

    checked: CheckedUpload
    node: Stored | None
    cluster_id: int

    @property
    def is_move(self) -> bool:
        return self.node is not None and self.node.cluster_id != self.cluster_id

    @property
    def is_needed(self) -> bool:
        return self.node is None or self.is_move or self.node.differs_from(self.checked)


@dataclass(frozen=True)
class Prepared:
    """What uploads come to, as far as no lock is needed: by their numbers the verdicts on those
    that are refused or change nothing, and the changes, evaluated and packed."""

    verdicts: Mapping[int, Verdict]
    changes: Mapping[int, _Change]
    evaluated: Evaluated
    packed: Packed


def store(uploads: Sequence[Upload], create: bool | None = None) -> list[Verdict]:
    """A verdict for each upload, in their order. Bad ones are refused each for itself.

    `create`: True refuses nodes that exist (AlreadyExists), False those that do not (NotFound).
    One transaction for all, as long as no system_id comes twice; then the later one comes after.
    """
    verdicts, checked = _checked(uploads)
    for chosen in _rounds(checked):
        verdicts.update(_store(chosen, create))
    return [verdicts[number] for number in range(len(uploads))]


def prepare(checked: Sequence[CheckedUpload], create: bool | None = None) -> Prepared | None:
    """What `store_checked` does before it takes a lock, in any thread. None where a system_id comes
    twice: what the later one comes to depends on the earlier one."""
    if len({item.upload.system_id for item in checked}) != len(checked):
        return None
    return _prepare(list(enumerate(checked)), create, requests=1)


def store_checked(
    checked: Sequence[CheckedUpload],
    create: bool | None = None,
    prepared: Prepared | None = None,
) -> list[Verdict]:
    """As `store`, for those that were checked before. `prepared`: of the same uploads; relies on:
    whatever was to be stored before them, and concerns their nodes, was stored before that."""
    verdicts: dict[int, Verdict] = {}
    for chosen in _rounds(list(enumerate(checked))):
        verdicts.update(_store(chosen, create, prepared=prepared))
    return [verdicts[number] for number in range(len(checked))]


def store_requests(
    uploads: Sequence[Upload], create: bool | None = None
) -> list[Verdict | Exception]:
    """As `store`, for uploads that are requests of their own and only share a transaction. Where
    that fails, each is stored alone, unless the database is out of order: then the error is what
    each of them gets."""
    found: dict[int, Verdict | Exception] = {}
    verdicts, checked = _checked(uploads)
    found.update(verdicts)
    for chosen in _rounds(checked):
        found.update(_store_requests(chosen, create))
    return [found[number] for number in range(len(uploads))]


def _store_requests(
    chosen: list[tuple[int, CheckedUpload]], create: bool | None
) -> Mapping[int, Verdict | Exception]:
    try:
        return _store(chosen, create, requests=len(chosen))
    except Exception as error:
        if len(chosen) == 1 or isinstance(error, OUTAGE):
            return {number: error for number, _ in chosen}
        log.warning("stored one by one", action="group_failed", error=str(error), exc_info=error)
    found: dict[int, Verdict | Exception] = {}
    for item in chosen:
        found.update(_store_requests([item], create))
    return found


def _checked(
    uploads: Sequence[Upload],
) -> tuple[dict[int, Verdict], list[tuple[int, CheckedUpload]]]:
    """The bad ones with their verdicts, and the others; by their number."""
    verdicts: dict[int, Verdict] = {}
    checked: list[tuple[int, CheckedUpload]] = []
    for number, upload in enumerate(uploads):
        try:
            checked.append((number, check(upload)))
        except TagmillError as error:
            verdicts[number] = Verdict(upload.system_id, "refused", error=error)
    return verdicts, checked


def delete(system_id: str, expects: Callable[[Stored], None] | None = None) -> bool:
    """Leave a tombstone: documents and manual tags go. `expects` as in Upload. Whether every tag is
    settled without it. Raises NotFound."""
    verdict = _attempt(lambda: _delete([Deletion(system_id, expects)]))[system_id]
    if verdict.error is not None:
        raise verdict.error
    return bool(verdict.settled)


def delete_all(wanted: Sequence[Deletion]) -> list[Verdict]:
    """As `delete`, for all of these in one transaction: a verdict for each, in their order. Those
    that do not exist are refused each for itself, and what comes twice is gone the second time."""
    once = list({item.system_id: item for item in wanted}.values())
    found: dict[str, Verdict] = _attempt(lambda: _delete(once))
    missing = {key: _missing(key, field="system_id") for key in found}
    verdicts = []
    for item in wanted:
        key = item.system_id
        verdicts.append(missing[key] if isinstance(found[key].error, NotFound) else found[key])
        if found[key].error is None:
            found[key] = missing[key]
    return verdicts


def delete_requests(wanted: Sequence[Deletion]) -> list[Verdict | Exception]:
    """As `delete`, for requests of their own that only share a transaction, as `store_requests`."""
    found: dict[int, Verdict | Exception] = {}
    left = list(enumerate(wanted))
    while left:
        # A node that comes twice is gone the second time.
        now: dict[str, tuple[int, Deletion]] = {}
        for number, item in left:
            now.setdefault(item.system_id, (number, item))
        left = [(number, item) for number, item in left if now[item.system_id][0] != number]
        found.update(_delete_requests(list(now.values())))
    return [found[number] for number in range(len(wanted))]


def _delete_requests(
    chosen: Sequence[tuple[int, Deletion]],
) -> dict[int, Verdict | Exception]:
    try:
        verdicts = _attempt(lambda: _delete([item for _, item in chosen]))
        return {number: verdicts[item.system_id] for number, item in chosen}
    except Exception as error:
        if len(chosen) == 1 or isinstance(error, OUTAGE):
            return {number: error for number, _ in chosen}
        log.warning("deleted one by one", action="group_failed", error=str(error), exc_info=error)
    found: dict[int, Verdict | Exception] = {}
    for one in chosen:
        found.update(_delete_requests([one]))
    return found


def _missing(system_id: str, **extra: str) -> Verdict:
    error = NotFound(f"there is no node {system_id!r}", **extra)
    return Verdict(system_id, "refused", error=error)


def _delete(wanted: Sequence[Deletion]) -> dict[str, Verdict]:
    """A verdict for each node. No system_id comes twice."""
    verdicts = {item.system_id: _missing(item.system_id) for item in wanted}
    found = _live(list(verdicts))
    if not found:
        return verdicts
    evaluated = settling.evaluate([])
    with transaction.atomic():
        partitions = [node.partition_id for node in found.values()]
        held, nodes = _locked(partitions, list(found), list(found.values()))
        if nodes.keys() != found.keys():
            raise _Overtaken
        writes = Writes(held)
        gone = []
        for item in wanted:
            if (node := nodes.get(item.system_id)) is None:
                continue
            try:
                if item.expects is not None:
                    item.expects(node)
            except TagmillError as error:
                verdicts[item.system_id] = Verdict(item.system_id, "refused", error=error)
                continue
            writes.delete(node)
            gone.append(node)
        waiting = finish(held, writes, evaluated)
        queue.defer_partitions(waiting, policy.CHANGE)
    for node in gone:
        is_settled = node.partition_id not in waiting
        verdicts[node.system_id] = Verdict(node.system_id, "deleted", settled=is_settled)
    return verdicts


def _rounds(
    checked: list[tuple[int, CheckedUpload]],
) -> Iterator[list[tuple[int, CheckedUpload]]]:
    """No system_id twice in one of them."""
    while checked:
        seen: set[str] = set()
        now: list[tuple[int, CheckedUpload]] = []
        later: list[tuple[int, CheckedUpload]] = []
        for item in checked:
            system_id = item[1].upload.system_id
            (later if system_id in seen else now).append(item)
            seen.add(system_id)
        yield now
        checked = later


def _attempt(work: Any) -> Any:
    for _ in range(ATTEMPTS):
        try:
            return work()
        except (_Overtaken, settling.Superseded, ClusterGone):
            continue
        except IntegrityError:
            # It may have been a dictionary that is gone.
            at_rest.forget()
    raise DatabaseUnavailable("too many changes to the same nodes at once: try again")


def _store(
    chosen: list[tuple[int, CheckedUpload]],
    create: bool | None,
    requests: int = 1,
    prepared: Prepared | None = None,
) -> dict[int, Verdict]:
    """In one transaction; no system_id comes twice."""
    # Somebody may have been faster: then all is looked at again.
    ready = [] if prepared is None else [prepared]

    def work() -> dict[int, Verdict]:
        return _apply(ready.pop() if ready else _prepare(chosen, create, requests))

    found: dict[int, Verdict] = _attempt(work)
    return found


def _prepare(
    chosen: list[tuple[int, CheckedUpload]], create: bool | None, requests: int
) -> Prepared:
    chosen_clusters = _Clusters()
    system_ids = [checked.upload.system_id for _, checked in chosen]
    nodes = _live(system_ids)
    verdicts: dict[int, Verdict] = {}
    changes: dict[int, _Change] = {}
    surely = surely_parsed(
        [
            document
            for _, checked in chosen
            for document in checked.changed(_digests(nodes.get(checked.upload.system_id)))
        ]
    )
    for number, checked in chosen:
        system_id = checked.upload.system_id
        node = nodes.get(system_id)
        try:
            checked.parse(_digests(node), surely)
            change = _plan(checked, node, create, chosen_clusters)
        except TagmillError as error:
            verdicts[number] = Verdict(system_id, "refused", error=error)
            continue
        if change.is_needed:
            changes[number] = change
        else:
            verdicts[number] = checked.verdict("unchanged", node.rev if node else None)
    pairs = [(item.checked, item.node) for item in changes.values()]
    evaluated = settling.evaluate(pairs, requests) if pairs else settling.NOTHING
    return Prepared(verdicts, changes, evaluated, _packed(changes.values()))


def _packed(changes: Iterable[_Change]) -> Packed:
    """The documents that these changes store, packed before any lock is taken."""
    found: dict[DocumentKey, AtRest] = {}
    for change in changes:
        for document in change.checked.changed(_digests(change.node)):
            key = (change.cluster_id, document.probe, document.digest)
            if key not in found:
                found[key] = at_rest.pack(*key[:2], document.xml, document.size)
    return found


def _digests(node: Stored | None) -> Mapping[str, bytes]:
    return node.digests if node else {}


def _plan(
    checked: CheckedUpload, node: Stored | None, create: bool | None, chosen: _Clusters
) -> _Change:
    upload = checked.upload
    if create is True and node is not None:
        raise AlreadyExists(f"there is a node {upload.system_id!r} already", field="system_id")
    if create is False and node is None:
        raise NotFound(f"there is no node {upload.system_id!r}")
    if upload.expects is not None:
        upload.expects(node)
    check_probes(checked, node)
    if upload.cluster is not None:
        return _Change(checked, node, chosen.named(upload.cluster))
    return _Change(checked, node, node.cluster_id if node else chosen.only())


def _apply(prepared: Prepared) -> dict[int, Verdict]:
    if not prepared.changes:
        return dict(prepared.verdicts)
    with transaction.atomic():
        return {**prepared.verdicts, **_write_all(prepared)}


def _write_all(prepared: Prepared) -> dict[int, Verdict]:
    changes = prepared.changes
    wanted: dict[int, int] = {}
    for change in changes.values():
        if change.node is None or change.is_move:
            wanted[change.cluster_id] = wanted.get(change.cluster_id, 0) + 1
    partitions = [change.node.partition_id for change in changes.values() if change.node]
    for cluster_id in sorted(wanted):
        partitions += reserve(cluster_id, wanted[cluster_id])
    looked_at = [change.node for change in changes.values()]
    system_ids = [change.checked.upload.system_id for change in changes.values()]
    held, nodes = _locked(partitions, system_ids, looked_at)
    writes = Writes(held, prepared.packed)
    found = {
        number: _write(change, nodes.get(change.checked.upload.system_id), held, writes)
        for number, change in changes.items()
    }
    waiting = finish(held, writes, prepared.evaluated)
    queue.defer_partitions(waiting, policy.CHANGE)
    places = {item.system_id: item.partition for item in writes.changed if item.system_id}
    return {
        number: replace(verdict, settled=places[verdict.system_id] not in waiting)
        if verdict.system_id in places
        else verdict
        for number, verdict in found.items()
    }


def _write(change: _Change, node: Stored | None, held: HeldPartitions, writes: Writes) -> Verdict:
    """`node` is as it is under the locks."""
    checked = change.checked
    system_id = checked.upload.system_id
    # Deleted, made or moved meanwhile (a move makes a new row).
    if (node and node.id) != (change.node and change.node.id):
        raise _Overtaken
    try:
        # Somebody else may have changed it meanwhile, or added probes.
        if checked.upload.expects is not None:
            checked.upload.expects(node)
        check_probes(checked, node)
    except TagmillError as error:
        return Verdict(system_id, "refused", error=error)
    if node is None:
        rev = writes.create(checked, _room(held, change.cluster_id))
        return checked.verdict("created", rev)
    if node.cluster_id != change.cluster_id:
        rev = writes.move(node, checked, _room(held, change.cluster_id))
        return checked.verdict("updated", rev)
    if node.differs_from(checked):
        return checked.verdict("updated", writes.update(node, checked))
    return checked.verdict("unchanged", node.rev)


def _locked(
    partitions: Sequence[int], system_ids: Sequence[str], looked_at: Sequence[Stored | None]
) -> tuple[HeldPartitions, dict[str, Stored]]:
    """The partitions, locked, and the nodes as they are now that nobody else can change them.
    `looked_at`: what they were before."""
    held = HeldPartitions(partitions)
    seen = {node.system_id: node for node in looked_at if node is not None}
    if len(seen) == len(system_ids) and all(
        node.partition_id in held and held[node.partition_id].before == node.partition_rev
        for node in seen.values()
    ):
        # Whoever changes a node raises its partition's rev: nobody has since we looked.
        return held, seen
    nodes = _live(system_ids)
    if any(node.partition_id not in held for node in nodes.values()):
        raise _Overtaken
    return held, nodes


def _room(held: HeldPartitions, cluster_id: int) -> Any:
    partition = held.with_room(cluster_id)
    if partition is None:
        raise _Overtaken
    return partition


def finish(held: HeldPartitions, writes: Writes, evaluated: Evaluated) -> list[int]:
    """Write everything, settle what was evaluated, and raise the revs. The partitions that are left
    to the queue: the last thing done."""
    with sql.pipelined() if writes.are_updates else contextlib.nullcontext():
        writes.flush()
        known = writes.carry(evaluated.live.ids)
        waiting = settling.settle(held, writes.changed, evaluated, known)
        writes.flush_assignments()
        held.write()
    return waiting


def _live(system_ids: Sequence[str]) -> dict[str, Stored]:
    found = sql.bound(Stored.of, __file__, "live_nodes", {"system_ids": list(system_ids)})
    return {node.system_id: node for node in found}


class _Clusters:
    """Clusters by name or uuid, looked up once each."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self._only: int | None = None

    def named(self, key: str) -> int:
        """Raises NotFound."""
        if key not in self._found:
            self._found[key] = clusters.named(key).id
        return self._found[key]

    def only(self) -> int:
        """Raises Invalid unless there is exactly one."""
        if self._only is None:
            ids = list(Cluster.objects.values_list("id", flat=True)[:2])
            if len(ids) != 1:
                raise Invalid(
                    "name the cluster: there are several"
                    if ids
                    else "there is no cluster yet: create one first (POST /api/v1/clusters/)",
                    field="cluster",
                )
            self._only = ids[0]
        return self._only
