"""What lists of nodes may be asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from api.rest import filters
from api.rest.clusters import cluster_named
from api.rest.filters import Filter
from tagmill.errors import Invalid
from tagmill.tags import places

FILTERS = (
    filters.text("cluster", None, "Its name or uuid."),
    filters.text("kind", None, "Exactly, as `machine`."),
    filters.text("hostname", None, "Exactly."),
    filters.text("hostname_prefix", None, "What the hostname begins with, in any case."),
    filters.text("q", None, "What the hostname or the system_id begins with, in any case."),
    filters.text("text", None, "Text anywhere in the hostname or the system_id, in any case."),
)


PLACE = re.compile(r"(\d{1,18})\.(\d{1,6})", re.ASCII)


def _before(place: str) -> int:
    """What the first page is after that begins there."""
    found = PLACE.fullmatch(place)
    if found is None or int(found[2]) >= places.PLACES:
        raise Invalid("begin must be a partition and a slot, as 12.345", field="begin")
    return places.key(int(found[1]), int(found[2])) - 1


BEGIN = Filter(
    "begin",
    "From this place on, `partition.slot` as in `tags/{name}/members`; not with `after`.",
    {"type": "string", "pattern": r"^[0-9]{1,18}\.[0-9]{1,6}$"},
    _before,
)


def chosen(
    asked: Mapping[str, Any], tags: Sequence[int] = (), not_tags: Sequence[int] = ()
) -> places.Filters:
    """Raises NotFound for a cluster that does not exist: a typing error must not look like no
    nodes."""
    cluster = asked.get("cluster")
    return places.Filters(
        tags=tags,
        not_tags=not_tags,
        cluster=None if cluster is None else cluster_named(cluster).id,
        hostname=asked.get("hostname"),
        kind=asked.get("kind"),
        hostname_prefix=asked.get("hostname_prefix", ""),
        prefix=asked.get("q", ""),
        text=asked.get("text", ""),
    )
