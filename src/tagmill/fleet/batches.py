"""What workers read: the documents of a partition, in pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import structlog

from tagmill import sql
from tagmill.errors import DocumentDamaged, Invalid, NotFound
from tagmill.fleet import at_rest, incarnation
from tagmill.fleet.at_rest import AtRest, Dictionary
from tagmill.fleet.models import Partition
from tagmill_wire import frames
from tagmill_wire.frames import PLAIN, PackedBatch, PackedDocument, PackedNode
from tagmill_wire.messages import Batch, BatchNode

log = structlog.get_logger("tagmill.batches")

# A dictionary goes along with a page where there is a document for so many bytes of it.
WORTH_BYTES = 2048
# Slots start at 0.
BEFORE_THE_FIRST = -1
# PostgreSQL's bigint.
MAX_ID = 2**63 - 1


class _Row(NamedTuple):
    """What is known of the partition, and a document of a page of it; a node without any, whose
    probe and what follows is None; or no node, where none is `found`."""

    incarnation: str | None
    partition_rev: int | None
    cluster: int
    slot: int
    rev: int
    is_deleted: bool
    found: int
    probe: str | None
    xml: str | None
    packed: bytes | None
    dictionary: int | None
    size: int


class Stored(Protocol):
    """A document of a node, or a node without any: what is looked at of such a row."""

    @property
    def slot(self) -> int | None: ...
    @property
    def rev(self) -> int: ...
    @property
    def is_deleted(self) -> bool: ...
    @property
    def probe(self) -> str | None: ...
    @property
    def xml(self) -> str | None: ...
    @property
    def packed(self) -> bytes | None: ...
    @property
    def dictionary(self) -> int | None: ...
    @property
    def size(self) -> int: ...


class _Page(NamedTuple):
    """`next`: the `after` of the page that follows."""

    rev: int
    cluster: int
    rows: Sequence[_Row]
    next: int | None


class Revision(NamedTuple):
    """A partition's rev (None: there is no such partition), in an incarnation of the database
    (None: not noted yet)."""

    incarnation: str | None
    rev: int | None


def check(named: str, partition_id: int, since: int | None, now: Revision) -> int:
    """The partition's rev, for who knows it as of `since` in the incarnation that is named. Raises
    IncarnationChanged, NotFound, and Invalid for a `since` that has never been."""
    if not named:
        raise Invalid("name the incarnation that the lease is of", field="incarnation")
    if now.incarnation != named:
        raise incarnation.changed()
    rev = _known(partition_id, now.rev)
    if since is not None and since > rev:
        log.error(incarnation.AHEAD, action="rev_ahead", partition=partition_id, at=rev, rev=since)
        raise Invalid(f"partition {partition_id} is at rev {rev}", field="since")
    return rev


def _known(partition_id: int, rev: int | None) -> int:
    if rev is None:
        raise NotFound(f"no partition {partition_id}")
    return rev


def read_in(named: str, partition_id: int, **page: Any) -> Batch:
    """`read` for who knows the partition as `check` says, which raises."""
    return _plain(partition_id, _read(named, partition_id, **page))


def packed_in(named: str, partition_id: int, **page: Any) -> Batch | PackedBatch:
    """As `read_in`, with the documents as they are at rest where that is less work for everybody:
    where enough of them name a dictionary to send it along."""
    found = _read(named, partition_id, **page)
    sent = _dictionaries(found)
    if not sent:
        return _plain(partition_id, found)
    nodes = _packed_nodes(partition_id, found.rows, sent)
    contents = {key: item.data for key, item in sent.items()}
    return PackedBatch(partition_id, found.rev, nodes, found.next, contents)


def dictionary(partition_id: int, key: int) -> bytes:
    """The content of a dictionary of the partition's cluster. Raises NotFound."""
    cluster = Partition.objects.filter(id=partition_id).values_list("cluster_id", flat=True).first()
    try:
        found = at_rest.dictionary(key) if key <= MAX_ID else None
    except DocumentDamaged:
        found = None
    # None of another cluster, for the reason that `_dictionaries` has.
    if found is None or cluster is None or found.cluster != cluster:
        raise NotFound(
            f"there is no dictionary {key} for partition {partition_id}: ask for the page without"
            f" {frames.NAMED}"
        )
    return found.data


def read(
    partition_id: int, since: int | None, after: int | None, max_nodes: int, max_bytes: int
) -> Batch:
    """One page (docs/protocol.md), of at least one node where any is left. Raises NotFound."""
    page = _read(
        None, partition_id, since=since, after=after, max_nodes=max_nodes, max_bytes=max_bytes
    )
    return _plain(partition_id, page)


def _plain(partition_id: int, found: _Page) -> Batch:
    return Batch(partition_id, found.rev, nodes(partition_id, found.rows), found.next)


def _read(
    named: str | None,
    partition_id: int,
    *,
    since: int | None,
    after: int | None,
    max_nodes: int,
    max_bytes: int,
) -> _Page:
    """The rows of one page, and the rev that the partition had in the same moment. `named`: None
    where the incarnation does not matter."""
    found = sql.bound(
        _Row,
        __file__,
        "batch",
        {
            "partition": partition_id,
            "since": since,
            "after": BEFORE_THE_FIRST if after is None else after,
            "max_nodes": max_nodes,
            "max_bytes": max_bytes,
        },
    )
    first = found[0]
    if named is not None:
        check(named, partition_id, since, Revision(first.incarnation, first.partition_rev))
    rev = _known(partition_id, first.partition_rev)
    if not first.found:
        return _Page(rev, first.cluster, (), None)
    has_more = first.found > len({row.slot for row in found})
    return _Page(rev, first.cluster, found, found[-1].slot if has_more else None)


def _dictionaries(found: _Page) -> dict[int, Dictionary]:
    """The dictionaries that go along. None of another cluster, which a node that moved may still
    name: the worker need not have the right to see what it is made of."""
    uses = Counter(row.dictionary for row in found.rows if row.dictionary is not None)
    sent = {}
    for key, count in uses.items():
        try:
            item = at_rest.dictionary(key)
        except DocumentDamaged:
            # Each of its documents says so when it is read.
            continue
        if item.cluster == found.cluster and count * WORTH_BYTES >= len(item.data):
            sent[key] = item
    return sent


def _packed_nodes(partition: int, rows: Sequence[_Row], sent: Container[int]) -> list[PackedNode]:
    nodes: list[PackedNode] = []
    probes: dict[str, PackedDocument] = {}
    for row in rows:
        if not nodes or nodes[-1].slot != row.slot:
            probes = {}
            nodes.append(PackedNode(row.slot, row.rev, None if row.is_deleted else probes))
        if row.probe is None:
            continue
        if row.packed is not None and row.dictionary is not None and row.dictionary in sent:
            probes[row.probe] = PackedDocument(row.dictionary, row.size, row.packed)
        else:
            plain = _text(partition, row).encode()
            probes[row.probe] = PackedDocument(PLAIN, len(plain), plain)
    return nodes


def nodes(partition: int, found: Iterable[Stored]) -> list[BatchNode]:
    """What rows say that are sorted by slot, each of a node."""
    made: list[BatchNode] = []
    probes: dict[str, str] = {}
    for row in found:
        if not made or made[-1].slot != row.slot:
            probes = {}
            made.append(BatchNode(row.slot or 0, row.rev, None if row.is_deleted else probes))
        if row.probe is not None:
            probes[row.probe] = _text(partition, row)
    return made


def _text(partition: int, row: Stored) -> str:
    """The XML; none where it is damaged: the worker cannot read the node, says so, and no tag
    matches it. The others of the batch are not held up."""
    try:
        return at_rest.unpack(AtRest(row.xml, row.packed, row.dictionary, row.size))
    except DocumentDamaged as error:
        place = {"partition": partition, "slot": row.slot, "probe": row.probe}
        log.error(error.detail, action="damaged", **place)
        return ""
