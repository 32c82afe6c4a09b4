"""Publishing without some clusters: what an operator may ask for when nobody can evaluate there.

A tag is published when its new definition is evaluated everywhere, so that a reader sees the old
set or the new one. A cluster without workers holds that up for all others. Whoever publishes
without it gives the claim up for that cluster, and for no other: its nodes lose the tag, and carry
it again partition by partition, as the new definition is evaluated there.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from tagmill import locks
from tagmill.audit import trail
from tagmill.audit.models import Event
from tagmill.errors import Invalid, NotComplete, NotFound, NothingPending
from tagmill.fleet.clusters import named
from tagmill.tags import publishing, rebuilds, waiting
from tagmill.tags.models import Tag


def publish(name: str, without: Sequence[str]) -> None:
    """Publish the tag's pending definition now, although it is not evaluated everywhere in the
    clusters named (by uuid or name). The rebuild runs on, and says which clusters they were.

    Raises NotFound, Invalid, NothingPending, and NotComplete while another cluster is not done.
    """
    if not without:
        raise Invalid("name the clusters to publish without", field="without")
    with transaction.atomic():
        clusters = {cluster.id: cluster.name for cluster in map(named, without)}
        found = locks.rows(Tag.objects.filter(name=name))
        if not found:
            raise NotFound(f"there is no tag {name!r}")
        (tag,) = found
        if tag.pending_expression_id is None:
            raise NothingPending(f"{name!r} has no definition that waits to be published")
        if not publishing.publish_locked([tag.id], sorted(clusters)):
            raise _not_complete(tag.pending_expression_id, set(clusters.values()))
        names = sorted(clusters.values())
        rebuilds.record_without(tag.id, names)
        trail.record(Event.Kind.TAG, tag.id, tag.name, Event.Action.PUBLISHED, {"without": names})
        rebuilds.finish_reached()
        rebuilds.notify_progress()


def _not_complete(expression: int, without: set[str]) -> NotComplete:
    found = waiting.waiting_for([expression]).expressions.get(expression, [])
    blocks = [wait for wait in found if wait.cluster not in without]
    why = "; ".join(wait.message for wait in blocks) or "its rebuild has just begun: try again"
    return NotComplete(f"the definition is not evaluated in all other clusters: {why}")
