"""API servers as processes, on the test's database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from loadtest.rig.stack import Stack, free_port, running
from tests.support.sql import database_url

ROOT = Path(__file__).resolve().parents[2]


def server(
    folder: Path, options: Sequence[str] = ("--no-maintenance",), **environment: str
) -> Generator[Stack, None, None]:
    """The environment is the server's alone: one that starts meanwhile does not inherit it."""
    named = {"DATABASE_URL": database_url(), "TAGMILL_VAR": str(folder / "var"), **environment}
    with running(Stack(f"127.0.0.1:{free_port()}", "", folder / "log", named)) as stack:
        stack.start_server(*options)
        yield stack


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py serve` to its end, which must be near."""
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"DATABASE_URL": database_url()},
    )
