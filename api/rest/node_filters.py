"""What lists of nodes may be asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from api import pagination
from api.rest import filters
from api.rest.base import Resource
from api.rest.clusters import cluster_named
from api.rest.filters import Filter
from api.rights import Scope
from tagmill.errors import Invalid, NotFound
from tagmill.tags import places
from tagmill.tags.models import Tag

FILTERS = (
    filters.text("cluster", None, "Its name or uuid."),
    filters.text("kind", None, "Exactly, as `machine`."),
    filters.text("hostname", None, "Exactly."),
    filters.text("hostname_prefix", None, "What the hostname begins with, in any case."),
    filters.text("q", None, "What the hostname or the system_id begins with, in any case."),
    filters.text("text", None, "Text anywhere in the hostname or the system_id, in any case."),
)

# Lists of all nodes ask which tags they carry.
TAGS = (
    OpenApiParameter(
        "tag", str, many=True, description="Nodes that carry it. Repeat it: all of them."
    ),
    OpenApiParameter(
        "not_tag", str, many=True, description="Nodes that do not. Repeat it: none of them."
    ),
)


Bodies = Callable[[Sequence[places.Found]], Iterable[Any]]

PLACE = re.compile(r"(\d{1,18})\.(\d{1,6})", re.ASCII)


def _before(place: str) -> int:
    """What the first page is after that begins there."""
    found = PLACE.fullmatch(place)
    if found is None:
        raise Invalid("begin must be a partition and a slot, as 12.345", field="begin")
    # A slot that is above all there may be is the next partition's first.
    return places.key(int(found[1]), min(int(found[2]), places.PLACES)) - 1


BEGIN = Filter(
    "begin",
    "From this place on, `partition.slot` as in `members` and `places`; not with `after`.",
    {"type": "string", "pattern": r"^[0-9]{1,18}\.[0-9]{1,6}$"},
    _before,
)


# Each is one more bitmap of every partition looked at.
MAX_TAG_FILTERS = 20


def of_list(asked: Mapping[str, Any], query: QueryDict, scope: Scope) -> places.Filters:
    """What the list of all nodes is asked for: its filters, and tags that nodes carry or do not; of
    the nodes in the scope. Raises Invalid, and NotFound for a tag that does not exist: a typing
    error must not look like no nodes."""
    with_tags, without = query.getlist("tag"), query.getlist("not_tag")
    if len(with_tags) + len(without) > MAX_TAG_FILTERS:
        raise Invalid(f"at most {MAX_TAG_FILTERS} tags in one question", field="tag")
    return chosen(asked, scope, tags=_tag_ids(with_tags), not_tags=_tag_ids(without))


def _tag_ids(names: Sequence[str]) -> tuple[int, ...]:
    """Raises NotFound."""
    found: dict[str, int] = {}
    if names:
        known = [name for name in names if "\0" not in name]
        found = dict(Tag.objects.filter(name__in=known).values_list("name", "id"))
    for name in names:
        if name not in found:
            raise NotFound(f"there is no tag {name!r}")
    return tuple(found[name] for name in names)


PLACED = "place"
# What `order` may be. Places are what everything is stored by; an index has system_ids in order.
ORDERS = {PLACED: PLACED, "system_id": "system_id", "-system_id": "-system_id"}


def page(view: Resource, wanted: places.Filters, bodies: Bodies) -> Response:
    """One page of the nodes, in the order that is asked for. Raises Invalid."""
    parameters, order = view.request.query_params, view.order

    def count() -> int:
        return places.count(wanted)

    if order == PLACED:
        return view.keyed_page(
            lambda after, limit: places.matching(wanted, after, limit), bodies, count
        )
    if BEGIN.name in view.asked:
        raise Invalid("a place is one in the order of places: leave `order` away", field=BEGIN.name)
    limit = pagination.limit_of(parameters, view.max_limit)
    cursor = parameters.get("after")
    after = pagination.decode(cursor, str) if cursor else None
    rows = places.by_system_id(wanted, after, limit + 1, descends=order.startswith("-"))
    following = pagination.encode(rows[limit - 1].system_id) if len(rows) > limit else None
    return view.listed(list(bodies(rows[:limit])), following, count)


def chosen(
    asked: Mapping[str, Any],
    scope: Scope,
    tags: Sequence[int] = (),
    not_tags: Sequence[int] = (),
) -> places.Filters:
    """What a list of the nodes in the scope is asked for. Raises NotFound for a cluster that does
    not exist: a typing error must not look like no nodes."""
    cluster = asked.get("cluster")
    return places.Filters(
        tags=tags,
        not_tags=not_tags,
        clusters=scope.ids if cluster is None else [cluster_named(cluster, scope).id],
        hostname=asked.get("hostname"),
        kind=asked.get("kind"),
        hostname_prefix=asked.get("hostname_prefix", ""),
        prefix=asked.get("q", ""),
        text=asked.get("text", ""),
    )
