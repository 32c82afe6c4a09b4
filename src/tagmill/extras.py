"""Commands that need more than a server has: the source tree, or the libraries of the benches."""

from __future__ import annotations

import sys
from importlib.util import find_spec

BENCHES = frozenset({"bench", "capacity"})
# The wheels leave the folder `loadtest` out.
OF_CHECKOUT = BENCHES | {"demo"}
LIBRARIES = ("simpy", "matplotlib")
FILE = "requirements-bench.txt"


def missing() -> list[str]:
    """The libraries that are not here. While there are any, the app `loadtest` is left out."""
    return [name for name in LIBRARIES if find_spec(name) is None]


def has_loadtest() -> bool:
    return find_spec("loadtest") is not None


def lacking(command: str) -> str:
    """What somebody has to do before the command runs; "" where nothing is missing."""
    if command in OF_CHECKOUT and not has_loadtest():
        return f"tagmill {command} runs from the source tree alone: `python manage.py {command}`"
    if command in BENCHES and (names := missing()):
        return (
            f"manage.py {command} needs {' and '.join(names)}: run"
            f" `{sys.executable} -m pip install -r {FILE}`. Servers need neither."
        )
    return ""
