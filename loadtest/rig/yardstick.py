"""How fast the machine is at this moment: the time of a fixed computation.

CPU seconds are less noisy than wall time, but not the same from one hour to the next: a virtual
machine shares its cores, caches and memory with others, and its CPU second does more or less work
(1.8 times was seen within a day). What is measured beside a yardstick can be compared with what was
measured beside another one.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
import zlib

# Long enough for the clock and for caches to matter, short beside what is measured.
ROWS = 4_000
TIMES = 5


def measure() -> float:
    """CPU seconds of the computation: objects, dictionaries and strings made from JSON and written
    again, as a server and a worker do all day, and bytes compressed. The median of a few."""
    return statistics.median(_once(_text()) for _ in range(TIMES))


@functools.cache
def _text() -> str:
    return json.dumps(
        [{"id": number, "name": f"node-{number:05}", "of": [number] * 5} for number in range(ROWS)]
    )


def _once(text: str) -> float:
    began = time.thread_time()
    rows = json.loads(text)
    by_name = {row["name"]: row for row in rows}
    packed = zlib.compress(json.dumps([by_name[name] for name in sorted(by_name)]).encode(), 1)
    zlib.decompress(packed)
    return time.thread_time() - began
