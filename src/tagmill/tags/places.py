"""Nodes by their places: pages of whatever bitmaps say, in the order of (partition, slot).

A page costs what it shows, and the bitmaps of the partitions that it looks at: no node is read to
find out that it is not in the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from tagmill import sql
from tagmill_wire import bitmap

# A place as one number: a slot is below this (config.partition_slots).
PLACES = 1 << 17
# What `after` is for the first page.
BEFORE_ALL = -1
# Whose bitmaps are read at once; a page of a tag that most nodes carry needs fewer.
MAX_PARTITIONS = 256
# Looked up at once, where nodes of a page turn out to be deleted.
MAX_PLACES = 16_384
SEARCHED = ("kind", "prefix", "hostname_prefix", "text")


class Found(NamedTuple):
    """A node of a page; `key` is its place in the order of all."""

    key: int
    system_id: str
    hostname: str
    kind: str
    cluster: str
    cluster_uuid: UUID
    rev: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Filters:
    """All of them hold of a node that is listed. Tags and clusters by their ids; None, or an empty
    text: any; a node is in one of the clusters. `prefix` and `hostname_prefix` are what hostname or
    system_id, or the hostname alone, begin with; `text` is anywhere in either of them. These three
    know no case."""

    tags: Sequence[int] = ()
    not_tags: Sequence[int] = ()
    clusters: Sequence[int] | None = None
    hostname: str | None = None
    kind: str | None = None
    prefix: str = ""
    hostname_prefix: str = ""
    text: str = ""

    @property
    def among(self) -> list[int] | None:
        """The clusters, as the queries take them."""
        return None if self.clusters is None else list(self.clusters)

    @property
    def searches(self) -> bool:
        """Whether nodes have to be looked at to find those."""
        return bool(self.kind is not None or self.prefix or self.hostname_prefix or self.text)


class _Named(NamedTuple):
    partition: int
    slots: list[int]


class _Carried(NamedTuple):
    partition: int
    name: str
    members: bytes


class _Bitmaps(NamedTuple):
    """What the filters are made of, in one partition. `named`: slots with the hostname."""

    partition: int
    slots: int
    named: list[int] | None
    members: list[bytes | None]


def _found(partition: int, slot: int, *node: Any) -> Found:
    return Found(partition * PLACES + slot, *node)


def matching(filters: Filters, after: int, limit: int) -> list[Found]:
    """Up to `limit` live nodes whose key is above `after`. They carry what `node_tag` says."""
    return page(_places(filters, after), limit)


def by_system_id(
    filters: Filters, after: str | None, limit: int, *, descends: bool = False
) -> list[Found]:
    """As `matching`, in the order of system_ids: those beyond `after`. Where few nodes are chosen
    an index is read until they are found, at worst once from one end to the other."""
    name = "nodes_before" if descends else "nodes_beyond"
    chosen = dict(_chosen(filters, 0))
    found: list[Found] = []
    most = limit
    while len(found) < limit:
        values = {"after": after, "clusters": filters.among, "most": most}
        rows = sql.named(_found, __file__, name, values)
        for row in rows:
            partition, slot = place(row.key)
            if chosen.get(partition, 0) >> slot & 1:
                found.append(row)
        if len(rows) < most:
            break
        after, most = rows[-1].system_id, min(2 * most, MAX_PLACES)
    return found[:limit]


def count(filters: Filters) -> int:
    """How many nodes `matching` would list in all."""
    return sum(bits.bit_count() for _, bits in live(filters))


def live(filters: Filters) -> Iterator[tuple[int, int]]:
    """Every partition with the slots of those that `matching` would list in all, as a bitmap."""
    return without_deleted(_chosen(filters, 0), filters.among)


def without_deleted(
    parts: Iterable[tuple[int, int]], clusters: Sequence[int] | None
) -> Iterator[tuple[int, int]]:
    """Partitions with slots, of these clusters or of all, without the slots of deleted nodes."""
    deleted = dict(sql.named(_Named, __file__, "tombstones", {"clusters": clusters}))
    for partition, bits in parts:
        yield partition, bits & ~bitmap.from_slots(deleted.get(partition, ()))


def tags_of(keys: Sequence[int]) -> list[list[str]]:
    """The names of the tags that the node at each of these places carries, sorted."""
    found: dict[int, list[str]] = {key: [] for key in keys}
    wanted: dict[int, int] = defaultdict(int)
    for key in keys:
        wanted[key // PLACES] |= 1 << key % PLACES
    values = {"partitions": list(wanted)}
    for partition, name, members in sql.bound(_Carried, __file__, "tags_in", values):
        first = partition * PLACES
        for slot in bitmap.slots(bitmap.from_bytes(members) & wanted[partition]):
            found[first + slot].append(name)
    return [found[key] for key in keys]


def key(partition: int, slot: int) -> int:
    """The place of a node."""
    return partition * PLACES + slot


def place(key: int) -> tuple[int, int]:
    """The partition and the slot of a place."""
    return divmod(key, PLACES)


def page(places: Iterator[int], limit: int) -> list[Found]:
    """The first `limit` live nodes at these places, which ascend."""
    found: list[Found] = []
    wanted = limit
    while len(found) < limit and (keys := list(islice(places, wanted))):
        pairs = [divmod(key, PLACES) for key in keys]
        values = {"partitions": [pair[0] for pair in pairs], "slots": [pair[1] for pair in pairs]}
        live = sql.bound(_found, __file__, "nodes_at", values)
        found += live
        # Twice what is missing, or twice as many again where few of them live.
        missing = limit - len(found)
        wanted = min(2 * (missing if 2 * len(live) > wanted else wanted), MAX_PLACES)
    return found[:limit]


def above(partition: int, bits: int, after: int) -> Iterator[int]:
    """The places of the slots set, above `after`."""
    first = partition * PLACES
    if first + PLACES > after:
        skipped = max(0, after + 1 - first)
        for slot in bitmap.slots(bits >> skipped << skipped):
            yield first + slot


def _places(filters: Filters, after: int) -> Iterator[int]:
    for partition, bits in _chosen(filters, max(0, after) // PLACES):
        yield from above(partition, bits, after)


def _chosen(filters: Filters, first: int) -> Iterator[tuple[int, int]]:
    """The partitions from the first on, each with the slots that the filters choose, among them
    those of nodes that were deleted."""
    values = {
        "tags": [*filters.tags, *filters.not_tags],
        "clusters": filters.among,
        "hostname": filters.hostname,
        "first": first,
        "most": MAX_PARTITIONS,
    }
    sought: dict[int, list[int]] | None = None
    if filters.searches:
        texts = {name: getattr(filters, name) for name in SEARCHED}
        sought = dict(sql.named(_Named, __file__, "sought", texts))
    while rows := sql.named(_Bitmaps, __file__, "bitmaps", values):
        for row in rows:
            bits = (1 << row.slots) - 1
            if filters.hostname is not None:
                bits &= bitmap.from_slots(row.named or ())
            if sought is not None:
                bits &= bitmap.from_slots(sought.get(row.partition, ()))
            sets = [0 if data is None else bitmap.from_bytes(data) for data in row.members]
            for has in sets[: len(filters.tags)]:
                bits &= has
            for has in sets[len(filters.tags) :]:
                bits &= ~has
            yield row.partition, bits
        values["first"] = rows[-1].partition + 1
