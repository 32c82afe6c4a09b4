"""The only writer of nodes and documents (beside the generator's COPY loader).

A change raises its partition's `rev` once a transaction, under the partition's lock, and stamps the
nodes with it; an upload that changes nothing takes no lock and raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction

from tagmill import sql
from tagmill.errors import (
    AlreadyExists,
    DatabaseUnavailable,
    Invalid,
    NotFound,
    PreconditionFailed,
    TagmillError,
)
from tagmill.fleet import clusters
from tagmill.fleet.documents import CheckedUpload, Upload, Verdict, check
from tagmill.fleet.models import Cluster
from tagmill.fleet.partitions import ClusterGone, HeldPartitions, reserve
from tagmill.flows import settling
from tagmill.flows.settling import Evaluated
from tagmill.flows.writes import Stored, Writes, check_probes
from tagmill.work import policy, queue

__all__ = ["Upload", "Verdict", "delete", "store"]

# A node is moved, deleted or made by somebody else between our look at it and our lock. It takes
# that many coincidences in a row to give up.
ATTEMPTS = 8


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


def store(uploads: Sequence[Upload], create: bool | None = None) -> list[Verdict]:
    """A verdict for each upload, in their order. Bad ones are refused each for itself.

    `create`: True refuses nodes that exist (AlreadyExists), False those that do not (NotFound).
    One transaction for all, as long as no system_id comes twice; then the later one comes after.
    """
    verdicts: dict[int, Verdict] = {}
    checked: list[tuple[int, CheckedUpload]] = []
    for number, upload in enumerate(uploads):
        try:
            checked.append((number, check(upload)))
        except TagmillError as error:
            verdicts[number] = Verdict(upload.system_id, "refused", error=error)
    for chosen in _rounds(checked):
        verdicts.update(_attempt(lambda chosen=chosen: _store(chosen, create)))
    return [verdicts[number] for number in range(len(uploads))]


def delete(system_id: str, expects: Callable[[Stored], None] | None = None) -> bool:
    """Leave a tombstone: documents and manual tags go. `expects` as in Upload. Whether every tag is
    settled without it. Raises NotFound."""
    return bool(_attempt(lambda: _delete(system_id, expects)))


def _delete(system_id: str, expects: Callable[[Stored], None] | None) -> bool:
    node = _live([system_id]).get(system_id)
    if node is None:
        raise NotFound(f"there is no node {system_id!r}")
    held, nodes = _locked([node.partition_id], [system_id])
    if system_id not in nodes:
        raise _Overtaken
    if expects is not None:
        expects(nodes[system_id])
    writes = Writes(held)
    writes.delete(nodes[system_id])
    return not _finish(held, writes, settling.evaluate([]))


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
            with transaction.atomic():
                return work()
        except (_Overtaken, ClusterGone, IntegrityError):
            continue
    raise DatabaseUnavailable("too many changes to the same nodes at once: try again")


def _store(chosen: list[tuple[int, CheckedUpload]], create: bool | None) -> dict[int, Verdict]:
    chosen_clusters = _Clusters()
    system_ids = [checked.upload.system_id for _, checked in chosen]
    nodes = _live(system_ids)
    verdicts: dict[int, Verdict] = {}
    changes: dict[int, _Change] = {}
    for number, checked in chosen:
        system_id = checked.upload.system_id
        node = nodes.get(system_id)
        try:
            change = _plan(checked, node, create, chosen_clusters)
        except TagmillError as error:
            verdicts[number] = Verdict(system_id, "refused", error=error)
            continue
        if change.is_needed:
            changes[number] = change
        else:
            verdicts[number] = Verdict(system_id, "unchanged", node.rev if node else None)
    if changes:
        verdicts.update(_apply(changes))
    return verdicts


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


def _apply(changes: dict[int, _Change]) -> dict[int, Verdict]:
    wanted: dict[int, int] = {}
    for change in changes.values():
        if change.node is None or change.is_move:
            wanted[change.cluster_id] = wanted.get(change.cluster_id, 0) + 1
    evaluated = settling.evaluate([(item.checked, item.node) for item in changes.values()])
    partitions = [change.node.partition_id for change in changes.values() if change.node]
    for cluster_id in sorted(wanted):
        partitions += reserve(cluster_id, wanted[cluster_id])
    system_ids = [change.checked.upload.system_id for change in changes.values()]
    held, nodes = _locked(partitions, system_ids)
    writes = Writes(held)
    found: dict[int, Verdict] = {}
    for number, change in changes.items():
        system_id = change.checked.upload.system_id
        node = nodes.get(system_id)
        # Deleted, made or moved meanwhile (a move makes a new row).
        if (node and node.id) != (change.node and change.node.id):
            raise _Overtaken
        try:
            # Somebody else may have changed it meanwhile, or added probes.
            if change.checked.upload.expects is not None:
                change.checked.upload.expects(node)
            check_probes(change.checked, node)
        except (Invalid, PreconditionFailed) as error:
            found[number] = Verdict(system_id, "refused", error=error)
            continue
        if node is None:
            rev = writes.create(change.checked, _room(held, change.cluster_id))
            found[number] = Verdict(system_id, "created", rev)
        elif node.cluster_id != change.cluster_id:
            rev = writes.move(node, change.checked, _room(held, change.cluster_id))
            found[number] = Verdict(system_id, "updated", rev)
        elif node.differs_from(change.checked):
            rev = writes.update(node, change.checked)
            found[number] = Verdict(system_id, "updated", rev)
        else:
            found[number] = Verdict(system_id, "unchanged", node.rev)
    waiting = set(_finish(held, writes, evaluated))
    places = {item.system_id: item.partition for item in writes.changed if item.system_id}
    return {
        number: replace(verdict, settled=places[verdict.system_id] not in waiting)
        if verdict.system_id in places
        else verdict
        for number, verdict in found.items()
    }


def _locked(
    partitions: Sequence[int], system_ids: list[str]
) -> tuple[HeldPartitions, dict[str, Stored]]:
    """The partitions, locked, and the nodes as they are now that nobody else can change them."""
    held = HeldPartitions(partitions)
    nodes = _live(system_ids)
    if any(node.partition_id not in held for node in nodes.values()):
        raise _Overtaken
    return held, nodes


def _room(held: HeldPartitions, cluster_id: int) -> Any:
    partition = held.with_room(cluster_id)
    if partition is None:
        raise _Overtaken
    return partition


def _finish(held: HeldPartitions, writes: Writes, evaluated: Evaluated) -> list[int]:
    """Write everything, settle what was evaluated, raise the revs, and leave the rest of the work
    with the queue: the last thing done. The partitions that wait for it."""
    writes.flush()
    known = writes.carry(evaluated.live.ids)
    waiting = settling.settle(held, writes.changed, evaluated, known)
    writes.flush_assignments()
    held.write()
    queue.defer_partitions(waiting, policy.CHANGE)
    return waiting


def _live(system_ids: list[str]) -> dict[str, Stored]:
    found = sql.rows(__file__, "live_nodes", {"system_ids": system_ids})
    return {row[1]: Stored.of(row) for row in found}


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
