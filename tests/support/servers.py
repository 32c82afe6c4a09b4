"""API servers as processes, on the test's database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from loadtest.rig.stack import Stack, free_port, running
from tests.support.sql import database_url

ROOT = Path(__file__).resolve().parents[2]


def server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: Sequence[str] = ("--no-maintenance",),
) -> Generator[Stack, None, None]:
    monkeypatch.setenv("DATABASE_URL", database_url())
    monkeypatch.setenv("TAGMILL_VAR", str(tmp_path / "var"))
    with running(Stack(f"127.0.0.1:{free_port()}", "", tmp_path / "log")) as stack:
        stack.start_server(*options)
        yield stack


def common_server(
    tmp_path_factory: pytest.TempPathFactory, **settings: str
) -> Generator[Stack, None, None]:
    """One for several tests, with these settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(f"TAGMILL_{name.upper()}", value)
        yield from server(tmp_path_factory.mktemp("server"), patch)


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py serve` to its end, which must be near."""
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
