"""A worker and a reference that share no code with the ones under test, but the protocol."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import cache

import zstandard
from lxml import etree
from msgspec.structs import replace

from tagmill.fleet import batches
from tagmill_wire import bitmap
from tagmill_wire.messages import (
    Batch,
    Changes,
    Definition,
    ExpressionSet,
    Failure,
    LeasedPartition,
    MatchResult,
    OfSet,
    PartitionResult,
    SlotVerdicts,
    load,
)

Probes = dict[str, str]

DOCUMENTS = {
    "empty": None,
    "bare": "<list/>",
    "gpu": "<list><node class='display'><vendor>NVIDIA</vendor></node></list>",
    "amd": "<node class='system'><node class='display'><vendor>AMD</vendor></node></node>",
    "big": "<list><node class='memory'><size>274877906944</size></node></list>",
    "both": "<list><node class='display'><vendor>NVIDIA</vendor></node>"
    "<node class='memory'><size>274877906944</size></node></list>",
}
LLDP = {
    "none": None,
    "s1": "<lldp><name>switch1</name></lldp>",
    "s2": "<lldp><name>s2</name></lldp>",
}
DEFINITIONS = [
    "//node[@class='display']",
    "//size > 1000",
    "true()",
    "//lldp:name[.='switch1']",
    # The kernel leaves the first to lxml, and the second takes it more steps than a server has when
    # its time is up.
    "count(//namespace::*) > 3",
    "//*[//*[//*[//*[.='switch1']]]]",
]


def holds(text: str, probes: Probes) -> bool:
    """What lxml says of one node (design section 3)."""
    return _holds(text, tuple(sorted(probes.items())))


# There are few documents and definitions, and each is asked for at every step.
@cache
def _holds(text: str, given: tuple[tuple[str, str], ...]) -> bool:
    probes = dict(given)
    if not probes:
        return False
    root = etree.fromstring(probes.get("lshw", "<list/>"))
    for probe in sorted(probes.keys() - {"lshw"}):
        other = etree.fromstring(probes[probe])
        for element in other.iter():
            element.tag = f"{{{probe}}}{element.tag}"
        root.append(other)
    return bool(root.xpath(f"boolean({text})", namespaces={"lldp": "lldp"}))


def where(text: str, nodes: dict[int, Probes]) -> int:
    return bitmap.from_slots(slot for slot, probes in nodes.items() if holds(text, probes))


@dataclass
class Image:
    """What a worker holds of a partition."""

    rev: int
    nodes: dict[int, Probes] = field(default_factory=dict)


@dataclass
class Fetch:
    """A lease under way: the pages read so far, onto a copy of what was held."""

    worker: int
    incarnation: str
    lease: LeasedPartition
    definitions: dict[str, Definition]
    base: Image | None
    nodes: dict[int, Probes] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    rev: int | None = None
    after: int | None = None
    is_done: bool = False
    live: ExpressionSet | None = None
    """The expression set that the lease names."""

    @property
    def ids(self) -> list[int]:
        """What the set has, in its order."""
        return [] if self.live is None else [item.expression for item in self.live.expressions]

    def asked(self) -> list[tuple[int, int | None, str]]:
        """(expression, base_rev, text) of what is stale."""
        found = [(item.expression, item.base_rev) for item in self.lease.expressions]
        for group in self.lease.of_set if isinstance(self.lease.of_set, list) else []:
            bits = -1
            if group.which is not None:
                bits = int.from_bytes(base64.b64decode(group.which), "little")
            named = [key for number, key in enumerate(self.ids) if bits >> number & 1]
            found += [(key, group.base_rev) for key in named]
        texts = {int(key): item.text for key, item in self.definitions.items()}
        if self.live is not None:
            texts |= {item.expression: item.text for item in self.live.expressions}
        return [(key, base, texts[key]) for key, base in found]

    def page(self, max_nodes: int) -> None:
        batch = self.brought() or batches.read_in(
            self.incarnation,
            self.lease.partition,
            since=self.base.rev if self.base else None,
            after=self.after,
            max_nodes=max_nodes,
            max_bytes=10_000,
        )
        if self.rev is None:
            # The image takes the rev of its first page: newer documents, never older ones.
            self.rev = batch.rev
            self.nodes = dict(self.base.nodes) if self.base else {}
        for node in batch.nodes:
            self.changed.add(node.slot)
            self.nodes.pop(node.slot, None)
            if node.probes:
                self.nodes[node.slot] = node.probes
        self.after = batch.next
        self.is_done = batch.next is None

    def brought(self) -> Batch | None:
        """What the lease brings along, where it begins at what is held."""
        changes = self.lease.changes
        if not isinstance(changes, Changes) or self.base is None:
            return None
        if changes.since != self.base.rev:
            return None
        if not changes.data:
            return Batch(self.lease.partition, changes.rev, [], None)
        return load(Batch, zstandard.decompress(base64.b64decode(changes.data)))

    def image(self) -> Image:
        assert self.rev is not None
        return Image(self.rev, self.nodes)

    def result(self, failing: str | None, *, by_set: bool = False) -> PartitionResult:
        """Deltas where the stored match is at the rev of what was held; else full results."""
        assert self.rev is not None
        capacity = self.lease.capacity
        matches, failures = [], []
        for key, base_rev, text in self.asked():
            if text == failing:
                failures.append(Failure(key, "it ran away"))
                continue
            is_delta = self.base is not None and base_rev == self.base.rev != self.rev
            nodes = (
                {slot: self.nodes[slot] for slot in self.changed if slot in self.nodes}
                if is_delta
                else self.nodes
            )
            matches.append(
                MatchResult(
                    key,
                    bitmap.encode(where(text, nodes), capacity),
                    base_rev if is_delta else None,
                    bitmap.encode(bitmap.from_slots(self.changed), capacity) if is_delta else None,
                )
            )
        found = PartitionResult(
            self.lease.lease,
            self.lease.partition,
            self.rev,
            matches,
            failures,
            len(self.nodes),
            0.1,
        )
        return self.packed(found) if by_set and self.live is not None else found

    def packed(self, found: PartitionResult) -> PartitionResult:
        """The same by bitmaps over the set."""
        assert self.live is not None
        deltas: dict[int, int] = {}
        holds = dict.fromkeys(sorted(self.changed), 0)
        empty, left = 0, []
        for match in found.matches:
            if match.expression not in self.ids:
                left.append(match)
                continue
            bit = 1 << self.ids.index(match.expression)
            members = int.from_bytes(base64.b64decode(match.members), "little")
            if match.base_rev is not None:
                deltas[match.base_rev] = deltas.get(match.base_rev, 0) | bit
                for slot in holds:
                    holds[slot] |= bit if members >> slot & 1 else 0
            elif not members:
                empty |= bit
            else:
                left.append(match)
        return replace(
            found,
            matches=left,
            set=self.live.version,
            deltas=[OfSet(base, self.over_set(bits)) for base, bits in deltas.items()],
            changed=[SlotVerdicts(slot, self.over_set(bits)) for slot, bits in holds.items()],
            empty=self.over_set(empty),
        )

    def over_set(self, bits: int) -> str:
        return base64.b64encode(bits.to_bytes(-(-len(self.ids) // 8), "little")).decode()
