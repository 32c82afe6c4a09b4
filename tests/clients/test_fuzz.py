"""schemathesis as each role, against a real server: `make api-fuzz`. It prints what it finds;
docs/api.md lists what may stay. Only a 5xx fails here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import tokens
from loadtest.rig.stack import Stack
from tests.support.http import ROLES
from tests.support.servers import server

SECONDS = os.environ.get("TAGMILL_FUZZ_SECONDS")
# Streams never end, and the tokens that are asked with must not be revoked.
LEFT_OUT = "auth/token|user-tokens|events|changes|/workers/"

pytestmark = pytest.mark.skipif(SECONDS is None, reason="make api-fuzz runs it")


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    yield from server(tmp_path, TAGMILL_PREVIEWS_PER_MINUTE="1000000")


@pytest.mark.parametrize("role", ROLES)
def test_no_request_breaks_the_server(stack: Stack, role: str, tmp_path: Path) -> None:
    token = tokens.create(f"fuzz-{role}", role)[1]
    command = (
        *(
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            f"{stack.url}/api/schema/",
            "--url",
            stack.url,
        ),
        *("--checks", "all", "--max-time", str(SECONDS), "--exclude-path-regex", LEFT_OUT),
        *("--header", f"Authorization: Bearer {token}"),
    )
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    print(found.stdout)
    assert "Server error" not in found.stdout
