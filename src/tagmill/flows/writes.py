"""The rows that one transaction writes, gathered and then sent in a few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tagmill import sql
from tagmill.errors import Invalid
from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest
from tagmill.fleet.digests import node_digest
from tagmill.fleet.documents import MAX_PROBES, CheckedDocument, CheckedUpload
from tagmill.fleet.partitions import Held, HeldPartitions
from tagmill.matches import matches
from tagmill.tags import assignments

KIND = "machine"

# Cluster, probe and digest of a document, and how it is stored there.
DocumentKey = tuple[int, str, bytes]
Packed = Mapping[DocumentKey, AtRest]


class Changed(NamedTuple):
    """A slot whose node this transaction changes. `digests`: of the documents that it has then;
    None: a tombstone. `is_same`: they are those that it had in this slot."""

    partition: int
    slot: int
    system_id: str = ""
    digests: dict[str, bytes] | None = None
    is_same: bool = False


@dataclass(frozen=True)
class Stored:
    """A live node as the database has it. `digests`: those of its documents, by probe.
    `partition_rev`: what its partition's was in that moment."""

    id: int
    system_id: str
    hostname: str
    kind: str
    partition_id: int
    slot: int
    rev: int
    cluster_id: int
    partition_rev: int
    digests: dict[str, bytes]

    @classmethod
    def of(cls, *row: Any) -> Stored:
        """`row` is a row of the query `live_nodes`."""
        *columns, probes, digests = row
        by_probe = dict(zip(probes, map(bytes, digests), strict=True))
        fields = (*columns, by_probe)
        return cls(*fields)

    def differs_from(self, checked: CheckedUpload) -> bool:
        upload = checked.upload
        return (
            upload.hostname not in (None, self.hostname)
            or upload.kind not in (None, self.kind)
            or self.digests_after(checked) != self.digests
        )

    def digests_after(self, checked: CheckedUpload) -> dict[str, bytes]:
        """The digests once the upload is stored."""
        digests = dict(self.digests)
        for probe, document in checked.documents.items():
            if document is None:
                digests.pop(probe, None)
            else:
                digests[probe] = document.digest
        return digests


def check_probes(checked: CheckedUpload, node: Stored | None) -> None:
    """Raises Invalid where the node would then have too many probes: all its documents go to a
    worker in one page. One that has too many from before may lose some."""
    if node is None or len(node.digests) + len(checked.documents) <= MAX_PROBES:
        return
    count = len(node.digests_after(checked))
    if count > max(MAX_PROBES, len(node.digests)):
        raise Invalid(
            f"a node has at most {MAX_PROBES} probes, and {node.system_id} would have {count}: "
            "delete some first",
            field="probes",
        )


class Writes:
    """Relies on: every partition concerned is in `held`. Nothing is written before `flush`. What is
    not in `packed` is packed then."""

    def __init__(self, held: HeldPartitions, packed: Packed | None = None) -> None:
        self._held = held
        self._packed = packed or {}
        self._inserted: list[tuple[Any, ...]] = []
        self._new: dict[str, tuple[CheckedUpload, int]] = {}
        self._moved: list[tuple[Stored, Held, int]] = []
        self._updated: list[tuple[int, str, str, int, bytes]] = []
        self._deleted: list[tuple[int, int]] = []
        self._documents: list[tuple[int, int, str, CheckedDocument | None]] = []
        self._unassigned: list[tuple[int, int]] = []
        self._without_documents: list[int] = []
        self.changed: list[Changed] = []

    def create(self, checked: CheckedUpload, partition: Held) -> int:
        upload = checked.upload
        digests = {probe: item.digest for probe, item in checked.documents.items() if item}
        names = upload.system_id, upload.hostname or "", upload.kind or KIND
        self._insert(names, partition, digests)
        self._new[upload.system_id] = checked, partition.cluster_id
        return partition.rev

    def update(self, node: Stored, checked: CheckedUpload) -> int:
        partition = self._held[node.partition_id]
        partition.is_changed = True
        hostname, kind = _described(node, checked)
        digests = node.digests_after(checked)
        is_same = digests == node.digests
        self.changed.append(Changed(node.partition_id, node.slot, node.system_id, digests, is_same))
        digest = node_digest(digests)
        self._updated.append((node.id, hostname, kind, partition.rev, digest))
        self._documents += [
            (node.id, node.cluster_id, probe, document)
            for probe, document in checked.documents.items()
        ]
        return partition.rev

    def move(self, node: Stored, checked: CheckedUpload, partition: Held) -> int:
        """A tombstone where it was and a new slot; documents and tags come along."""
        self._leave_tombstone(node)
        names = node.system_id, *_described(node, checked)
        slot = self._insert(names, partition, node.digests_after(checked), node)
        self._moved.append((node, partition, slot))
        self._new[node.system_id] = checked, partition.cluster_id
        return partition.rev

    def delete(self, node: Stored) -> None:
        self._leave_tombstone(node)
        self._unassigned.append((node.partition_id, node.slot))
        self._without_documents.append(node.id)

    def _insert(
        self,
        names: tuple[str, str, str],
        partition: Held,
        digests: dict[str, bytes],
        old: Stored | None = None,
    ) -> int:
        """`names`: system_id, hostname and kind; `old`: where the node was."""
        slot = partition.give_slot()
        digest = node_digest(digests)
        self.changed.append(Changed(partition.id, slot, names[0], digests))
        moved = old and old.id
        # To whom it only moves within its cluster, it has not changed.
        same = old.id if old and old.cluster_id == partition.cluster_id else None
        row = (*names, partition.id, slot, partition.rev, digest, moved, same)
        self._inserted.append(row)
        return slot

    def _leave_tombstone(self, node: Stored) -> None:
        partition = self._held[node.partition_id]
        partition.remove_node()
        self.changed.append(Changed(partition.id, node.slot))
        self._deleted.append((node.id, partition.rev))

    @property
    def are_updates(self) -> bool:
        """Whether no node is made, moved or deleted."""
        return not self._inserted and not self._deleted

    def flush(self) -> None:
        # A tombstone first: its system_id is free then.
        if self._deleted:
            ids, revs = _columns(self._deleted)
            sql.run(__file__, "mark_nodes_deleted", {"ids": ids, "revs": revs})
        self._flush_nodes()
        self._flush_documents()
        if self._without_documents:
            sql.run(__file__, "delete_documents_of_nodes", {"node_ids": self._without_documents})

    def carry(self, live: Iterable[int]) -> set[int] | None:
        """Let nodes that move take their tags along. The expressions that exist, of these and of
        those that are carried, kept from the collector; None where no node moves. They are locked
        here, since matches are after."""
        if not self._moved:
            return None
        places = {partition.id: partition for _, partition, _ in self._moved}
        found = matches.carried(
            [
                matches.Move(node.partition_id, node.slot, partition.id, slot)
                for node, partition, slot in self._moved
            ]
        )
        known = matches.hold({*live, *(item.expression for item in found)})
        matches.carry(found, known, places)
        return known

    def flush_assignments(self) -> None:
        """Tags by hand, whose rows are locked after those of matches."""
        moved = [(node.partition_id, node.slot) for node, _, _ in self._moved]
        if not moved and not self._unassigned:
            return
        if assignments.hold([*moved, *self._unassigned]):
            assignments.clear(self._unassigned)
            for node, partition, slot in self._moved:
                assignments.move(node.partition_id, node.slot, partition.id, slot)

    def _flush_nodes(self) -> None:
        if self._inserted:
            names = ["system_ids", "hostnames", "kinds", "partitions", "slots", "revs", "digests"]
            names += ["moved", "same"]
            # By system_id: two transactions that insert the same ones wait one for the other.
            columns = dict(zip(names, _columns(sorted(self._inserted)), strict=True))
            ids = dict(sql.rows(__file__, "insert_nodes", columns))
            if self._moved:
                olds = [old.id for old, _, _ in self._moved]
                news = [ids[old.system_id] for old, _, _ in self._moved]
                sql.run(__file__, "move_documents", {"olds": olds, "news": news})
            for system_id, (checked, cluster) in self._new.items():
                self._documents += [
                    (ids[system_id], cluster, probe, document)
                    for probe, document in checked.documents.items()
                ]
        if self._updated:
            names = ["ids", "hostnames", "kinds", "revs", "digests"]
            columns = dict(zip(names, _columns(self._updated), strict=True))
            sql.run_binary(__file__, "update_nodes", columns)

    def _flush_documents(self) -> None:
        kept = [(node, probe, item) for node, _, probe, item in self._documents if item]
        gone = [(node, probe) for node, _, probe, item in self._documents if item is None]
        if kept:
            stored = [self._stored(row[1], row[3]) for row in self._documents if row[3]]
            parameters = {
                "node_ids": [node for node, _, _ in kept],
                "probes": [probe for _, probe, _ in kept],
                "xmls": [item.xml for item in stored],
                "packed": [item.packed for item in stored],
                "dictionaries": [item.dictionary for item in stored],
                "sizes": [item.size for _, _, item in kept],
                "digests": [item.digest for _, _, item in kept],
            }
            sql.run_binary(__file__, "upsert_documents", parameters)
        if gone:
            nodes, probes = _columns(gone)
            sql.run(__file__, "delete_documents", {"node_ids": nodes, "probes": probes})

    def _stored(self, cluster: int, item: CheckedDocument) -> AtRest:
        found = self._packed.get((cluster, item.probe, item.digest))
        return found or at_rest.pack(cluster, item.probe, item.xml, item.size)


def _described(node: Stored, checked: CheckedUpload) -> tuple[str, str]:
    upload = checked.upload
    hostname = node.hostname if upload.hostname is None else upload.hostname
    return hostname, upload.kind or node.kind


def _columns(rows: list[Any]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
