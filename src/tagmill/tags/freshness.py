"""How far each tag is: its state, its count, and what is left to evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from tagmill import sql


class Tag(Protocol):
    """What is asked about: a model's instance, or less."""

    @property
    def id(self) -> int: ...
    @property
    def expression_id(self) -> int | None: ...
    @property
    def pending_expression_id(self) -> int | None: ...


class TagStatus(NamedTuple):
    """`node_count`: live nodes of the published set; before a manual tag's first definition is
    published, those assigned by hand. `pending`: partitions that are stale for the expression that
    is to be published, or else the published one. `failure`: empty, or why."""

    state: Literal["ready", "building", "failed"]
    node_count: int
    partitions: int
    pending: int
    evaluated_at: datetime | None
    failure: str


class _Row(NamedTuple):
    """A row about an expression, a tag, or neither: `partitions` are those where it is fresh, none,
    or all there are."""

    expression: int | None
    tag: int | None
    partitions: int
    evaluated_at: datetime | None
    nodes: int
    failure: str | None


class _Status(NamedTuple):
    stale: int
    evaluated_at: datetime | None
    nodes: int
    failure: str


class Freshness(NamedTuple):
    """How many definitions tags have, how many of them wait for evaluation in a partition, and when
    one was evaluated there last."""

    definitions: int
    pending: int
    evaluated_at: datetime | None


def of_partition(partition: int) -> Freshness:
    """How true the tags of the partition's nodes are."""
    (found,) = sql.bound(Freshness, __file__, "freshness_in", {"partition": partition})
    return found


def status(tags: Sequence[Tag]) -> dict[int, TagStatus]:
    """{tag id: its status}, by one query, which reads each match of these tags once."""
    if not tags:
        return {}
    wanted = {
        expression
        for tag in tags
        for expression in (tag.expression_id, tag.pending_expression_id)
        if expression is not None
    }
    by_hand = sorted(tag.id for tag in tags if tag.expression_id is None)
    values = {"expressions": sorted(wanted), "tags": by_hand}
    partitions = 0
    evaluated: dict[int | None, _Status] = {}
    assigned: dict[int, int] = {}
    # The number of partitions comes first.
    for row in sql.named(_Row, __file__, "status", values):
        if row.expression is not None:
            stale = partitions - row.partitions
            evaluated[row.expression] = _Status(
                stale, row.evaluated_at, row.nodes, row.failure or ""
            )
        elif row.tag is not None:
            assigned[row.tag] = row.nodes
        else:
            partitions = row.partitions
    # An expression that was collected meanwhile is one that nobody has evaluated.
    missing = _Status(partitions, None, 0, "")
    found: dict[int, TagStatus] = {}
    for tag in tags:
        if tag.expression_id or tag.pending_expression_id:
            found[tag.id] = _of_automatic(
                tag,
                partitions,
                evaluated.get(tag.expression_id, missing),
                evaluated.get(tag.pending_expression_id or tag.expression_id, missing),
                assigned.get(tag.id, 0),
            )
        else:
            nodes = assigned.get(tag.id, 0)
            found[tag.id] = TagStatus("ready", nodes, partitions, 0, None, "")
    return found


def _of_automatic(
    tag: Tag, partitions: int, published: _Status, target: _Status, assigned: int
) -> TagStatus:
    state: Literal["ready", "building", "failed"] = "ready"
    if target.failure:
        state = "failed"
    elif tag.pending_expression_id or target.stale:
        state = "building"
    return TagStatus(
        state,
        assigned if tag.expression_id is None else published.nodes,
        partitions,
        target.stale,
        published.evaluated_at or target.evaluated_at,
        target.failure,
    )
