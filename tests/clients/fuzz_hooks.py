"""What schemathesis does not know by itself: how lines are sent. SCHEMATHESIS_HOOKS names it."""

from __future__ import annotations

from typing import Any

import schemathesis

TYPES = ("application/x-ndjson", "application/octet-stream")


@schemathesis.serializer(*TYPES)
def as_it_is(ctx: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
