"""As many different definitions as a benchmark wants, shaped like those that people write.

Definitions are of two kinds, and differ in cost twentyfold. The demo's *look up* which documents
have something: the kernel's postings say. All others *search*: they count or compare, in each
document (of people's own definitions, about one in five does). Any number of them is a fair
mixture of their forms.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from fixtures.tags import SAMPLE_TAGS

CLASSES = ("network", "display", "disk", "processor", "memory", "storage", "bridge", "bus")
VENDORS = ("Intel", "AMD", "NVIDIA", "Mellanox", "Broadcom", "Supermicro", "Dell", "QEMU")
GIGABYTES = (1, 4, 16, 64, 256, 1024)


def definitions(count: int) -> dict[str, str]:
    """`count` definitions by name: those of the demo first. The same for the same count."""
    chosen = itertools.islice(texts(), count)
    return {f"bench-{number}": text for number, text in enumerate(chosen)}


def searches(count: int) -> int:
    """How many of so many definitions search."""
    return max(0, count - len(SAMPLE_TAGS))


def texts() -> Iterator[str]:
    """All of them, without end, no two alike."""
    yield from (tag.definition for tag in SAMPLE_TAGS)
    for number in itertools.count():
        # Shuffled: what is measured with some tags must be true of more.
        made = list(_searching(number))
        random.Random(number).shuffle(made)  # noqa: S311 - reproducible
        yield from made


def _searching(number: int) -> Iterator[str]:
    for kind in CLASSES:
        yield f"count(//node[@class='{kind}']) > {number}"
    for kind, vendor in itertools.product(CLASSES, VENDORS):
        yield f"count(//node[@class='{kind}' and contains(vendor, '{vendor}')]) > {number}"
    for size in GIGABYTES:
        least = (size << 30) + number
        yield f"//node[@class='memory' and size >= {least}]"
