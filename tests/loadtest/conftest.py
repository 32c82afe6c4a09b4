"""Benches run as a user runs them: `manage.py bench ...`, on the tests' PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tagmill import config

ROOT = Path(__file__).resolve().parents[2]
# Far beyond what the small runs take, also on a busy machine.
SECONDS = 180

Run = Callable[..., dict[str, Any]]


def environment() -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": config.load().database_url, "COLUMNS": "200"}


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def manage(tmp_path: Path) -> Run:
    """Run a command with --json; its JSON, with what it printed as `printed`, and `pid`. `code` is
    the exit code that it must have; None where it says how exact a measurement was."""

    def run(*arguments: str, code: int | None = 0) -> dict[str, Any]:
        file = tmp_path / f"{arguments[-1].strip('-')}.json"
        process = start(*arguments, "--json", str(file))
        printed, _ = process.communicate(timeout=SECONDS)
        assert code is None or process.returncode == code, printed
        found = json.loads(file.read_text()) if file.exists() else {}
        return {**found, "printed": printed, "pid": process.pid}

    return run
