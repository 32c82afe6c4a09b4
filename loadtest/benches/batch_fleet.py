"""The nodes of `bench batch`: the same documents in three layouts, and how they age.

- `interleaved`: the groups are clusters, and nodes arrive round robin. The rows of a group are
  strewn over the table, as objects are that are placed by a hash of their names.
- `contiguous`: the groups are the partitions of one cluster, filled one after the other.
- `packed`: the same, stored with a dictionary. The others are stored as XML.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fixtures.generate import ProfileName, generate
from tagmill.fleet import clusters, dictionaries
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Cluster, Partition
from tagmill.flows import ingest

INTERLEAVED, CONTIGUOUS, PACKED = "interleaved", "contiguous", "packed"
LAYOUTS = (INTERLEAVED, CONTIGUOUS, PACKED)
PROBE = "lshw"
AGED_SHARE = 0.3
# Other documents for the same nodes.
SEED, SAMPLE_SEED, AGED_SEED = 1, 2, 3
CHUNK = 100


@dataclass(frozen=True)
class Layout:
    """`texts`: the documents by node, in the order in which they were stored first. `groups`: ids
    of partitions."""

    name: str
    texts: dict[str, str]
    groups: list[int]


def slots_of(nodes: int, groups: int) -> int:
    """The slots of a partition that make so many groups; whole bytes of a bitmap."""
    return -(-nodes // (8 * groups)) * 8


def load(
    nodes: int, groups: int, profile: ProfileName, rewrite: Callable[[], None]
) -> dict[str, Layout]:
    """Under `partition_slots` as of `slots_of`. `rewrite`: called where the table of documents is
    to be as if it had just been filled."""
    texts = [item.probes[PROBE] for item in generate(nodes, SEED, profile)]
    cluster = clusters.create(PACKED)
    names = [f"{PACKED}-{number:05}" for number in range(nodes)]
    sample = [item.probes[PROBE] for item in generate(nodes, SAMPLE_SEED, profile)]
    _store(zip(names, sample, strict=True), lambda _: PACKED)
    dictionaries.look(cluster.id, nodes, 0)
    # With the dictionary that is there now.
    _store(zip(names, texts, strict=True), lambda _: PACKED)
    rewrite()
    found = {PACKED: _layout(PACKED, names, texts, [cluster])}

    names = [f"{INTERLEAVED}-{number:05}" for number in range(nodes)]
    made = [clusters.create(f"{INTERLEAVED}-{group}") for group in range(groups)]
    of_node = {name: made[number % groups].name for number, name in enumerate(names)}
    # A chunk has one node of each group.
    _store(zip(names, texts, strict=True), of_node.__getitem__, groups)
    found[INTERLEAVED] = _layout(INTERLEAVED, names, texts, made)

    names = [f"{CONTIGUOUS}-{number:05}" for number in range(nodes)]
    cluster = clusters.create(CONTIGUOUS)
    _store(zip(names, texts, strict=True), lambda _: CONTIGUOUS)
    found[CONTIGUOUS] = _layout(CONTIGUOUS, names, texts, [cluster])
    return found


def age(layouts: dict[str, Layout], profile: ProfileName) -> int:
    """Give some nodes of each, drawn at random, another document, one after another; how many."""
    count = 0
    for layout in layouts.values():
        names = list(layout.texts)
        # The same nodes of every layout.
        drawn = random.Random(AGED_SEED).sample(range(len(names)), int(AGED_SHARE * len(names)))  # noqa: S311 - not for secrets
        fresh = [item.probes[PROBE] for item in generate(len(names), AGED_SEED, profile)]
        for number in drawn:
            layout.texts[names[number]] = fresh[number]
            _store([(names[number], fresh[number])], lambda _: None)
        count += len(drawn)
    return count


def _layout(
    name: str, names: Sequence[str], texts: Sequence[str], among: Sequence[Cluster]
) -> Layout:
    found = Partition.objects.filter(cluster__in=among).order_by("cluster_id", "number")
    groups = list(found.values_list("id", flat=True))
    return Layout(name, dict(zip(names, texts, strict=True)), groups)


def _store(
    found: Iterator[tuple[str, str]] | Sequence[tuple[str, str]],
    cluster_of: Callable[[str], str | None],
    chunk: int = CHUNK,
) -> None:
    uploads = [Upload(name, cluster_of(name), probes={PROBE: text}) for name, text in found]
    for first in range(0, len(uploads), chunk):
        for verdict in ingest.store(uploads[first : first + chunk]):
            if verdict.error is not None:
                raise verdict.error
