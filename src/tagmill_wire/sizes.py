"""Sizes as people write them, the same for the settings of server and worker."""

from __future__ import annotations

import re

UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


def size(text: str) -> int:
    """Bytes, as 1048576, 64MiB or 64 MB. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d{1,18})\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].lower() not in UNITS:
        raise ValueError("must be a number of bytes, as 1048576 or 64MiB")
    return int(found[1]) * UNITS[found[2].lower()]
