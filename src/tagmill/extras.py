"""What `manage.py bench` and `capacity` need beyond `requirements.txt`, and a server does not."""

from __future__ import annotations

from importlib.util import find_spec

COMMANDS = frozenset({"bench", "capacity"})
LIBRARIES = ("simpy", "matplotlib")
FILE = "requirements-bench.txt"


def missing() -> list[str]:
    """The libraries that are not here. While there are any, the app `loadtest` is left out."""
    return [name for name in LIBRARIES if find_spec(name) is None]
