"""How large a request's body may be: a limit for each route, declared with its view or its native
resource.

Whoever sends more than MAX_STRANGERS_BYTES must have shown a token or a session before the rest is
read, so that strangers cannot fill memory or disk. The server (`api/server/http.py`) and the
parsers both hold the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.urls import Resolver404, resolve

from tagmill.config import KIB, MIB, load

# 64 KiB of `{}` take less than 2 MiB as objects.
MAX_STRANGERS_BYTES = 64 * KIB


@dataclass(frozen=True)
class BodyLimit:
    """`setting`: the variable that changes it, where one does."""

    read: Callable[[], int]
    setting: str = ""

    @property
    def size(self) -> int:
        """The limit in bytes."""
        return self.read()

    def __str__(self) -> str:
        setting = f" ({self.setting})" if self.setting else ""
        return f"{self.size} bytes{setting}"


# Every route that declares nothing else.
SMALL = BodyLimit(lambda: MAX_STRANGERS_BYTES)
# A definition, its comment and its namespaces, all of them of the longest kind and escaped.
DEFINITION = BodyLimit(lambda: 256 * KIB)
# Names, or leases: the serializers bound their number.
LIST = BodyLimit(lambda: 2 * MIB)
# The partitions that a worker names as held, ten bytes each.
LEASE = BodyLimit(lambda: MIB)
DOCUMENT = BodyLimit(lambda: load().document_bytes, "TAGMILL_DOCUMENT_BYTES")
# A worker's results; and a node with its documents as JSON.
LARGE = BodyLimit(lambda: load().request_bytes, "TAGMILL_REQUEST_BYTES")
# An image of a partition, which waits in a file.
IMAGE = BodyLimit(lambda: load().image_bytes, "TAGMILL_IMAGE_BYTES")

# Who was told that something is under way asks again after it.
RETRY_SECONDS = 1


def limit_of(path: str) -> BodyLimit:
    """The limit that the view of the path declares."""
    try:
        view = resolve(path).func
    except Resolver404:
        return SMALL
    limit: BodyLimit = getattr(getattr(view, "cls", None), "body_limit", SMALL)
    return limit
