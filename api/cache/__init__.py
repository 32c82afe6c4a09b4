"""The body cache: bodies that many ask for, built once, packed once, kept by revision."""

from api.cache.bodies import Asked, Bodies, Built
from api.cache.entry import Entry, Name
from api.cache.keyspaces import Keyspace

__all__ = [
    "Asked",
    "Bodies",
    "Built",
    "Entry",
    "Keyspace",
    "Name",
    "bodies",
    "controls",
    "entry",
    "keyspaces",
    "reports",
    "shared",
]
