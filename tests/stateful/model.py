"""A worker and a reference that share no code with the ones under test, but the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from lxml import etree

from tagmill.fleet import batches
from tagmill_wire import bitmap
from tagmill_wire.messages import Definition, Failure, LeasedPartition, MatchResult, PartitionResult

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

    def page(self, max_nodes: int) -> None:
        since = self.base.rev if self.base else None
        batch = batches.read_in(
            self.incarnation,
            self.lease.partition,
            since=since,
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

    def image(self) -> Image:
        assert self.rev is not None
        return Image(self.rev, self.nodes)

    def result(self, failing: str | None) -> PartitionResult:
        """Deltas where the stored match is at the rev of what was held; else full results."""
        assert self.rev is not None
        capacity = self.lease.capacity
        matches, failures = [], []
        for stale in self.lease.expressions:
            text = self.definitions[str(stale.expression)].text
            if text == failing:
                failures.append(Failure(stale.expression, "it ran away"))
                continue
            is_delta = self.base is not None and stale.base_rev == self.base.rev != self.rev
            nodes = (
                {slot: self.nodes[slot] for slot in self.changed if slot in self.nodes}
                if is_delta
                else self.nodes
            )
            matches.append(
                MatchResult(
                    stale.expression,
                    bitmap.encode(where(text, nodes), capacity),
                    stale.base_rev if is_delta else None,
                    bitmap.encode(bitmap.from_slots(self.changed), capacity) if is_delta else None,
                )
            )
        return PartitionResult(
            self.lease.lease,
            self.lease.partition,
            self.rev,
            matches,
            failures,
            len(self.nodes),
            0.1,
        )
