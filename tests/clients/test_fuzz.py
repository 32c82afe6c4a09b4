"""schemathesis as each role, against a real server with a small fleet and a worker: `make
api-fuzz`. It prints what it finds; docs/api.md lists what may stay."""

from __future__ import annotations

import os
import re
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
# As `--mode positive` or `--phases stateful`.
OPTIONS = os.environ.get("TAGMILL_FUZZ_OPTIONS", "").split()
# Streams never end, and the token that is asked with must not be revoked.
LEFT_OUT = r"auth/token$|events$"
WORKER = "worker"
# A request that is as it is described and refused all the same: docs/api.md says which, and why.
MAY_STAY = {"ST202"}
HOOKS = "tests.clients.fuzz_hooks"

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
    uploads = [
        ingest.Upload(f"m{number}", cluster="north", probes={"lshw": document})
        for number in range(3)
    ]
    ingest.store(uploads)
    tags.create("gpu", definition="//node[@class='display']")
    tags.create("by-hand")
    assignments.assign("by-hand", ["m1"], [])


def credentials(role: str) -> str:
    if role == WORKER:
        return f"Worker {workers.issue_token('fuzz', 'all')[1]}"
    return f"Bearer {tokens.create(f'fuzz-{role}', role)[1]}"


@pytest.mark.parametrize("role", [*ROLES, WORKER])
def test_no_request_breaks_the_server(stack: Stack, role: str, tmp_path: Path) -> None:
    command = (
        *(str(Path(sys.executable).parent / "schemathesis"), "run"),
        *(f"{stack.url}/api/schema/", "--url", stack.url),
        *("--checks", "all", "--max-time", str(SECONDS), "--continue-on-failure"),
        *("--header", f"Authorization: {credentials(role)}"),
        *("--exclude-path-regex", LEFT_OUT if role != WORKER else "auth/|events$"),
        *(("--seed", SEED) if SEED else ()),
        *OPTIONS,
    )
    report = tmp_path / "report"
    with report.open("wb") as file:
        named = {**os.environ, "SCHEMATHESIS_HOOKS": HOOKS}
        subprocess.run(command, cwd=tmp_path, stdout=file, env=named, check=False)
    found = report.read_text()
    print(f"\n===== {role}\n{found}")
    assert "Test cases:" in found
    assert set(re.findall(r"^ *- (ST\d+) ", found, re.MULTILINE)) <= MAY_STAY
