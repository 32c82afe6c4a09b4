"""`waiting_for` in the answers about tags, rebuilds and previews, and `Prefer: wait`, which is held
natively (api/server/waits.py, api/server/previews.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from tagmill.tags.waiting import MAX_WAITS, REASONS, Wait

PREFER = OpenApiParameter(
    "Prefer", str, OpenApiParameter.HEADER, description="`wait=N` waits up to N seconds."
)


class WaitOut(serializers.Serializer[Any]):
    reason = serializers.ChoiceField(
        REASONS,
        help_text="failure: the expression failed, see its tag. no_worker: nobody lives who may "
        "answer for the cluster. postponed: workers could not evaluate the partitions, and try "
        "again later. worker: one lives, and has not taken the partitions yet. "
        "evaluation: workers hold some of them.",
    )
    cluster = serializers.CharField(allow_null=True, help_text="Null for a failure.")
    partitions = serializers.IntegerField(help_text="That wait for it.")
    message = serializers.CharField(help_text="The same in words.")


def waits() -> WaitOut:
    """The field. Empty where nothing is waited for."""
    return WaitOut(
        many=True, help_text=f"Why it is not ready, the gravest first; at most {MAX_WAITS}."
    )


def bodies(found: Iterable[Wait]) -> list[dict[str, Any]]:
    return [
        {
            "reason": wait.reason,
            "cluster": wait.cluster,
            "partitions": wait.partitions,
            "message": wait.message,
        }
        for wait in found
    ]
