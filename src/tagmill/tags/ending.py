"""What results bring to an end: a pending definition that is published, a preview, a rebuild.

Most results bring about nothing of it, as most of the time nobody waits: one look says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.db import transaction

from tagmill import sql
from tagmill.tags import previews, publishing, rebuilds
from tagmill_wire import tracing


class _Waiting(NamedTuple):
    """Whether a tag waits to be published, a preview is under way, and a rebuild runs."""

    tags: bool
    previews: bool
    rebuilds: bool


def end_reached(expressions: Sequence[int], failing: Iterable[int]) -> None:
    """Publish, and end, what waited for these expressions alone, and wake those who watch.

    Call it when the transaction has committed that applied the last results of `expressions`, or
    that counted the failures of `failing`. Whoever begins to wait looks once more when that is
    committed (`rebuilds.look_again`): of the two, the later one sees both."""
    if sql.bound(bool, __file__, "anybody_waits", {}) == [False]:
        return
    concerned = sorted({*expressions, *failing})
    values = {"expressions": list(expressions), "concerned": concerned}
    (waiting,) = sql.bound(_Waiting, __file__, "who_waits", values)
    if not any(waiting):
        return
    with transaction.atomic():
        if waiting.tags:
            with tracing.span("publish", tracing.here()) as span:
                tags = publishing.publish(expressions)
                if span is not None:
                    span.end(tags=len(tags))
        if waiting.previews:
            previews.finish_reached(expressions)
            # Also where it is complete now: who waits for it would find out only by looking again.
            previews.notify_changed()
        if waiting.rebuilds:
            rebuilds.finish_reached()
            rebuilds.notify_progress()
