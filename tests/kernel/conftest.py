"""The kernel is optional: where it is not built, its tests do not exist."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("tagmill_kernel") is None:
    collect_ignore_glob = ["test_*.py"]
