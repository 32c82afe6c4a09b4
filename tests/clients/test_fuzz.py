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
from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.tags import assignments, tags
from tagmill.work import workers
from tests.support.http import ROLES
from tests.support.servers import server

SECONDS = os.environ.get("TAGMILL_FUZZ_SECONDS")
SEED = os.environ.get("TAGMILL_FUZZ_SEED")
OPTIONS = os.environ.get("TAGMILL_FUZZ_OPTIONS", "").split()
# Streams never end, and the token that is asked with must not be revoked.
LEFT_OUT = "auth/token$|events$|/workers/"

pytestmark = pytest.mark.skipif(SECONDS is None, reason="make api-fuzz runs it")


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    for found in server(tmp_path, TAGMILL_PREVIEWS_PER_MINUTE="1000000"):
        populate()
        found.token = workers.issue_token("rack", "all")[1]
        found.start_workers(1)
        yield found


def populate() -> None:
    """What a role that makes nothing can ask for."""
    clusters.create("north")
    document = b"<list><node id='core' class='display'/></list>"
    ingest.store(
        [
            ingest.Upload(f"m{number}", cluster="north", probes={"lshw": document})
            for number in range(3)
        ]
    )
    tags.create("gpu", definition="//node[@class='display']")
    tags.create("by-hand")
    assignments.assign("by-hand", ["m1"], [])


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
        *(("--seed", SEED) if SEED else ()),
        *OPTIONS,
    )
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    print(found.stdout)
    assert "Server error" not in found.stdout
