"""A small fleet through the domain's own functions, and what can be read of it."""

from __future__ import annotations

from lxml import etree

from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload, Verdict
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.flows import ingest
from tagmill.matches.models import Expression, Match
from tagmill.tags import tags
from tagmill.tags.models import NodeTag, Tag
from tagmill_wire import bitmap

GPU = b"<list><node id='core'><node class='display'/></node></list>"
BARE = b"<list><node id='core'/></list>"
HAS_GPU = "//node[@class='display']"
ANY = "//node"


def put(*names: str, cluster: str | None = None, xml: bytes = GPU) -> list[Verdict]:
    verdicts = ingest.store([Upload(name, cluster, probes={"lshw": xml}) for name in names])
    assert [verdict.error for verdict in verdicts] == [None] * len(names)
    return verdicts


def north(*names: str) -> Cluster:
    """A cluster with these nodes, each with a GPU."""
    found = clusters.create("north")
    put(*names)
    return found


def stale_partitions(count: int) -> list[int]:
    """Makes full partitions of eight slots, with a tag to be evaluated on them; their ids."""
    tags.create("gpu", definition=HAS_GPU)
    put(*(f"n{i}" for i in range(8 * count)))
    return list(Partition.objects.order_by("id").values_list("id", flat=True))


def node(name: str) -> Node:
    return Node.objects.select_related("partition").get(system_id=name, deleted_at=None)


def the_partition() -> Partition:
    return Partition.objects.get()


def carriers(tag: str) -> set[str]:
    """The system_ids of a tag's nodes, by the view."""
    found = NodeTag.objects.filter(tag__name=tag)
    return set(found.values_list("node__system_id", flat=True))


def true_carriers(text: str) -> set[str]:
    """What lxml says of the documents there are, one by one."""
    found = set()
    for item in Node.objects.filter(deleted_at=None).prefetch_related("documents"):
        for document in item.documents.all():
            root = etree.fromstring(document.xml.encode())
            if document.probe == "lshw" and root.xpath(f"boolean({text})"):
                found.add(item.system_id)
    return found


def members(expression: Expression, partition: Partition) -> set[int]:
    row = Match.objects.get(expression=expression, partition=partition)
    return set(bitmap.slots(bitmap.from_bytes(row.members)))


def tag(name: str) -> Tag:
    return Tag.objects.select_related("expression", "pending_expression").get(name=name)
