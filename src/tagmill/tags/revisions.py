"""The revision of a list of nodes: a text that changes whenever the list could read differently."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tagmill import sql
from tagmill.errors import NotFound
from tagmill.fleet import incarnation


class _Row(NamedTuple):
    incarnation: str | None
    found: int
    partitions: str | None
    clusters: str | None
    members: str | None


def of_nodes(tags: Collection[str] = ()) -> str:
    """The revision of any list of nodes that is chosen by these tags, by clusters, and by what is
    in the nodes themselves. Raises NotFound where a tag does not exist."""
    names = sorted(set(tags))
    (row,) = sql.bound(_Row, __file__, "nodes_revision", {"tags": names})
    if row.found != len(names):
        raise NotFound("there is no such tag")
    named = row.incarnation or str(incarnation.current())
    return f"{named}:{row.partitions}:{row.clusters}:{row.members}"
