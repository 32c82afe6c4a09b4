"""JSON as every answer has it."""

from __future__ import annotations

from typing import Any

import orjson


def dumps(value: Any) -> bytes:
    """Dates are in UTC, with a Z."""
    return orjson.dumps(value, default=str, option=orjson.OPT_UTC_Z)
