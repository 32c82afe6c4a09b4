"""What the program is called and where it keeps things, in a checkout or installed."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (ROOT / "manage.py").is_file()
NAME = "manage.py" if IN_CHECKOUT else "tagmill"


def data_directory() -> Path:
    """Where the embedded PostgreSQL and the demo's state are unless TAGMILL_VAR says so: beside the
    program in a checkout; otherwise what systemd names, or the user's directory for such things."""
    if IN_CHECKOUT:
        return ROOT / "var"
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "tagmill"
