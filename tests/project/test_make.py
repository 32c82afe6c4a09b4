"""What `make` does to files of the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tagmill.program import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def clean(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "clean"],
        cwd=ROOT,
        env={**os.environ, "TAGMILL_VAR": str(directory)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("ours", ["secret_key", "postgres/PG_VERSION"])
def test_the_data_directory_is_removed(ours: str, tmp_path: Path) -> None:
    var = tmp_path / "var"
    (var / ours).parent.mkdir(parents=True)
    (var / ours).touch()
    ended = clean(var)
    assert ended.returncode == 0, ended.stderr
    assert not var.exists()


def test_a_directory_of_anything_else_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "thesis" / "chapter"
    kept.parent.mkdir()
    kept.touch()
    ended = clean(kept.parent)
    assert ended.returncode != 0
    assert "nothing was removed" in ended.stdout
    assert kept.exists()
    assert clean(tmp_path / "nowhere").returncode == 0
