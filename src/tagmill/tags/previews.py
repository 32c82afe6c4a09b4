"""Previews: a definition evaluated before a tag has it, ahead of all other work.

evaluating ──► complete     every match has reached its target
           ├─► failed       the expression failed
           └─► gone         cancelled, expired, or a newer preview of its client took its place

A preview makes its expression live: it is leased and evaluated like a tag's. Its matches are those
that a tag with this definition would have, so that committing it evaluates nothing again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Literal, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import NotFound
from tagmill.fleet.models import Cluster
from tagmill.locks import Lock
from tagmill.matches import staleness
from tagmill.matches.expressions import check, digest, expression_for
from tagmill.matches.models import Expression
from tagmill.tags import failures, places
from tagmill.tags.models import Preview
from tagmill.tags.places import Found
from tagmill.work import policy, queue
from tagmill_wire import bitmap

Change = Literal["members", "out", "added", "removed"]
# Every live preview is evaluated again when a node changes: more than anybody looks at would only
# cost. The bench has ten clients.
MAX_OF_A_USER = 32


@dataclass(frozen=True)
class Progress:
    """`pending` of `partitions` have not reached the rev that they had when it was asked for."""

    state: Literal["evaluating", "complete", "failed"]
    partitions: int
    pending: int
    failure: str

    @property
    def is_over(self) -> bool:
        return self.state != "evaluating"


@dataclass
class Counts:
    """Live nodes. `added` and `removed` against the tag that it is compared with. `evaluated_*`:
    what the counts are of, so far; `total` and `partitions`: what they will be of."""

    nodes: int = 0
    added: int = 0
    removed: int = 0
    total: int = 0
    evaluated_nodes: int = 0
    partitions: int = 0
    evaluated_partitions: int = 0

    @property
    def is_known(self) -> bool:
        """Whether anything was evaluated that may match. Of no nodes, none match."""
        return self.evaluated_partitions > 0 or self.total == 0

    @property
    def share(self) -> float | None:
        """The share of the nodes evaluated so far that match."""
        return self.nodes / self.evaluated_nodes if self.evaluated_nodes else None


class _Reached(NamedTuple):
    uuid: UUID
    partitions: int
    pending: int
    completed_at: datetime | None
    failure: str | None


class _Expired(NamedTuple):
    preview: int
    expression: int


class Verdict(NamedTuple):
    """Whether the preview matches a node; None where it is not evaluated there yet."""

    system_id: str
    hostname: str
    cluster: str
    member: bool | None


class _Members(NamedTuple):
    partition: int
    cluster: int
    slots: int
    nodes: int
    members: bytes | None
    before: bytes | None
    deleted: list[int] | None


class _Part(NamedTuple):
    """A partition's bitmaps. Until it is evaluated, no slot is in any of them."""

    partition: int
    cluster: int
    nodes: int
    is_evaluated: bool
    slots: int
    """All slots, also those of nodes that were deleted before the evaluation."""
    members: int
    before: int
    """The members of the tag that the preview is compared with."""

    def of(self, change: Change) -> int:
        match change:
            case "members":
                return self.members
            case "out":
                return self.slots & ~self.members
            case "added":
                return self.members & ~self.before
            case "removed":
                return self.before & ~self.members


def start(
    definition: str,
    namespaces: Mapping[str, str],
    by: User,
    client: str,
    compare_to: str | None = None,
) -> Preview:
    """Evaluate the definition everywhere, ahead of other work. The client's older preview ends, and
    the user's oldest one when MAX_OF_A_USER are there.

    `compare_to` names a tag. Raises InvalidDefinition, TooLarge, NotFound.
    """
    check(definition, namespaces)
    with transaction.atomic():
        locks.fleet()
        locks.query(Lock.CLIENT, __file__, "lock_previews_of", {"user": by.id})
        older = _replaced(by, client)
        replaced = list(older.values_list("expression_id", flat=True))
        values = {"expressions": replaced, "digest": digest(definition, namespaces)}
        locks.query(Lock.EXPRESSION, __file__, "lock_expressions", values)
        expression = expression_for(definition, namespaces)
        # An earlier failure is forgotten: this request gets an evaluation of its own.
        failures.forget(Expression.objects.filter(id=expression.id))
        compared = _held_tag(compare_to)
        ended = [preview.id for preview in locks.rows(older, to_delete=True)]
        Preview.objects.filter(id__in=ended).delete()
        (made,) = sql.values(
            __file__,
            "insert_preview",
            {
                "user": by.id,
                "client": client,
                "expression": expression.id,
                "compare_to": compared,
                "minutes": load().preview_minutes,
            },
        )
        _renew({expression.id, *replaced})
        # It may be evaluated everywhere already: then its expression is in nobody's way.
        _finish(Preview.objects.filter(id=made))
        # Results that somebody stores at this moment see nothing of it, nor does it see them.
        transaction.on_commit(lambda: _look_again(begun), robust=True)
        if replaced:
            notify_changed()
        queue.defer_partitions(staleness.stale_for([expression.id]), policy.PREVIEW)
        begun = Preview.objects.select_related("expression", "compare_to").get(id=made)
        return begun


def _look_again(begun: Preview) -> None:
    # It may be over, or gone, by now.
    found = progress([begun.uuid]).get(begun.uuid)
    if begun.completed_at is None and found is not None and found.state == "complete":
        with transaction.atomic():
            finish_reached([begun.expression_id])
            notify_changed()


def _replaced(by: User, client: str) -> QuerySet[Preview]:
    """The client's older preview, and the user's oldest where there would be too many."""
    theirs = Preview.objects.filter(requested_by=by)
    others = theirs.exclude(client=client).order_by("-id").values_list("id", flat=True)
    too_many = list(others[MAX_OF_A_USER - 1 :])
    return theirs.filter(Q(client=client) | Q(id__in=too_many))


def get(uuid: UUID) -> Preview:
    """Raises NotFound."""
    found = Preview.objects.select_related("expression", "compare_to").filter(uuid=uuid).first()
    if found is None:
        raise gone(uuid)
    return found


def gone(uuid: UUID) -> NotFound:
    return NotFound(f"there is no preview {uuid}: it was cancelled, or a newer one came")


def cancel(uuid: UUID) -> None:
    """What is left to evaluate for it is left. Raises NotFound."""
    with transaction.atomic():
        expression = get(uuid).expression_id
        failures.lock([expression])
        locks.rows(Preview.objects.filter(uuid=uuid), to_delete=True)
        Preview.objects.filter(uuid=uuid).delete()
        _renew({expression})
        notify_changed()


def forget_expired() -> int:
    """Delete the previews that have expired, with the claim of their expressions; how many."""
    with transaction.atomic():
        rows = locks.query(Lock.EXPRESSION, __file__, "expired_previews", {})
        found = [_Expired(*row) for row in rows]
        over = Preview.objects.filter(id__in=[expired.preview for expired in found])
        locks.rows(over, to_delete=True)
        over.delete()
        if found:
            _renew({expired.expression for expired in found})
            notify_changed()
    return len(found)


def progress(previews: Sequence[UUID]) -> dict[UUID, Progress]:
    """The progress of the previews that still exist."""
    found = {}
    values = {"previews": list(previews)}
    for row in sql.named(_Reached, __file__, "preview_progress", values):
        if row.completed_at is not None or not row.pending:
            found[row.uuid] = Progress("complete", row.partitions, 0, "")
        elif row.failure is not None:
            found[row.uuid] = Progress("failed", row.partitions, row.pending, row.failure)
        else:
            found[row.uuid] = Progress("evaluating", row.partitions, row.pending, "")
    return found


def finish_reached(expressions: Sequence[int] | None = None) -> int:
    """Record which previews of these expressions (None: of any) are complete; how many. From here
    on their expressions wait in line with those of tags, whether or not anybody looks.

    Call it when the last results are committed.
    """
    running = Preview.objects.filter(completed_at=None)
    return _finish(running if expressions is None else running.filter(expression__in=expressions))


def _finish(running: QuerySet[Preview]) -> int:
    # The second of two last completions waits here, and then sees what the first has done.
    locked = [preview.uuid for preview in locks.rows(running)]
    over = [uuid for uuid, item in progress(locked).items() if item.state == "complete"]
    return Preview.objects.filter(uuid__in=over).update(completed_at=Now()) if over else 0


def notify_changed() -> None:
    """Wake those who wait for previews, when this transaction commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('tagmill_preview', '')")


class Membership:
    """What the preview matches at one moment, in one cluster or in all (None). Partitions that are
    not evaluated yet are left out, also of what it removes, and of who is out."""

    def __init__(self, preview: Preview, cluster: int | None = None) -> None:
        self._cluster = cluster
        values = {
            "expression": preview.expression_id,
            "compare_to": preview.compare_to_id,
            "cluster": cluster,
        }
        rows = sql.named(_Members, __file__, "preview_members", values)
        self._parts = list(_parts(rows))

    def counts(self) -> Counts:
        return _counted(self._parts)

    def clusters(self) -> list[tuple[Cluster, Counts]]:
        """The counts of every cluster that was asked about, ordered by name."""
        parts: dict[int, list[_Part]] = defaultdict(list)
        for part in self._parts:
            parts[part.cluster].append(part)
        asked = Cluster.objects.order_by("name")
        if self._cluster is not None:
            asked = asked.filter(id=self._cluster)
        return [(cluster, _counted(parts.get(cluster.id, ()))) for cluster in asked]

    def page(self, change: Change, after: int, limit: int) -> list[Found]:
        """Up to `limit` nodes whose key is above `after`, in the order of their keys."""
        found = (places.above(part.partition, part.of(change), after) for part in self._parts)
        return places.page(chain.from_iterable(found), limit)

    def bitmaps(self, change: Change) -> Iterator[tuple[int, int]]:
        """Every partition with the slots of those that `page` would list in all, as a bitmap."""
        found = ((part.partition, part.of(change)) for part in self._parts)
        clusters = None if self._cluster is None else [self._cluster]
        return places.without_deleted(found, clusters)


def verdicts(preview: Preview, nodes: Sequence[str]) -> list[Verdict]:
    """Ordered by system_id; nodes that there are not are left out."""
    values = {"expression": preview.expression_id, "nodes": list(nodes)}
    return sql.named(Verdict, __file__, "preview_verdicts", values)


def _held_tag(name: str | None) -> int | None:
    """The tag's id. It is not deleted before the transaction ends. Raises NotFound."""
    if name is None:
        return None
    found = locks.query(Lock.TAG, __file__, "hold_tag", {"name": name})
    if not found:
        raise NotFound(f"there is no tag {name!r} to compare with")
    ((tag,),) = found
    return int(tag)


def _renew(expressions: set[int]) -> None:
    sql.run(__file__, "renew_expressions", {"expressions": sorted(expressions)})


def _parts(rows: Iterable[_Members]) -> Iterator[_Part]:
    for row in rows:
        if row.members is None:
            yield _Part(row.partition, row.cluster, row.nodes, False, 0, 0, 0)
            continue
        live = ~bitmap.from_slots(row.deleted or ())
        yield _Part(
            row.partition,
            row.cluster,
            row.nodes,
            True,
            ((1 << row.slots) - 1) & live,
            bitmap.from_bytes(row.members) & live,
            bitmap.from_bytes(row.before) & live if row.before is not None else 0,
        )


def _counted(parts: Iterable[_Part]) -> Counts:
    total = Counts()
    for part in parts:
        total.partitions += 1
        total.total += part.nodes
        if part.is_evaluated:
            total.evaluated_partitions += 1
            total.evaluated_nodes += part.nodes
        total.nodes += part.members.bit_count()
        total.added += part.of("added").bit_count()
        total.removed += part.of("removed").bit_count()
    return total
