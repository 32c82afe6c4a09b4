#!/usr/bin/env python3
"""Tagmill's commands, from a checkout. `manage.py help` lists them."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def find_packages() -> None:
    """Our packages are in the folders that pyproject.toml names once, for pytest, `make` and here.
    Every process that this one starts inherits them by PYTHONPATH."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        folders = tomllib.load(file)["tool"]["pytest"]["ini_options"]["pythonpath"]
    ours = [os.path.normpath(ROOT / folder) for folder in folders]
    sys.path[:0] = ours
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    )


if __name__ == "__main__":
    find_packages()
    from tagmill_command import run

    run()
