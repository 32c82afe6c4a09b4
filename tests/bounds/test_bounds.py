"""What a user may send takes the server less than a second and 100 MiB, whatever it says.

`make bounds` draws more cases than the few here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tagmill.config import MIB
from tagmill.program import ROOT
from tagmill.tags import linting
from tagmill_expressions.lint import Warning

# How many cases are drawn; the named cases are those that once took more.
CASES = int(os.environ.get("TAGMILL_BOUNDS_CASES", "12"))
SEED = int(os.environ.get("TAGMILL_BOUNDS_SEED", "1"))
# CPU time on a machine that does other things, too: what is out of bounds takes minutes.
SECONDS = float(os.environ.get("TAGMILL_BOUNDS_SECONDS", "4"))


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "accepted"), [("definitions", 0.2), ("documents", 0.5)])
def test_no_text_of_allowed_size_takes_the_server_long_or_much_memory(
    kind: str, accepted: float
) -> None:
    command = [sys.executable, "-m", "tests.bounds.child"]
    ended = subprocess.run(
        [*command, kind, str(SEED), str(CASES), str(SECONDS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(found) > CASES
    # What is refused at once costs little.
    assert sum("accepted" in case["outcome"] for case in found) > accepted * len(found)
    dear = [case for case in found if case["seconds"] > SECONDS or case["bytes"] > 100 * MIB]
    assert dear == []
    assert [case for case in found if case["outcome"].startswith("ended")] == []


def test_warnings_are_kept_within_a_bound() -> None:
    kept = linting.Kept(None)
    warning = Warning("constant", "x" * 1000, 1, 1, "y" * 20_000)
    for number in range(1000):
        kept.keep((f"{number}", ()), (warning,) * 10)
    assert 0 < len(kept.warnings) * 210_000 <= linting.MAX_KEPT
    assert kept.size <= linting.MAX_KEPT
