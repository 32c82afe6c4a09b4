"""Clients that are generated from the description, without a word of help, run the main flow
against a real server and a worker: `make clients`.

They take minutes and the network where nothing is cached, so that they are no part of `make test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest

from api import tokens
from loadtest.rig.stack import Stack
from tagmill.work import workers
from tests.support.servers import server

HERE = Path(__file__).parent
GENERATORS = {
    "go": "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.0",
    "npm": ("openapi-typescript@7.13.0", "openapi-fetch", "typescript@5"),
}

pytestmark = pytest.mark.skipif(
    "TAGMILL_CLIENTS" not in os.environ, reason="make clients runs them"
)


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    for found in server(tmp_path):
        found.token = workers.issue_token("rack", "all")[1]
        found.start_workers(1)
        yield found


@pytest.fixture
def token(stack: Stack) -> str:
    return tokens.create("ann", "admin")[1]


@pytest.fixture
def schema(stack: Stack, tmp_path: Path) -> Path:
    file = tmp_path / "schema.yaml"
    with urlopen(f"{stack.url}/api/schema/") as answer:
        file.write_bytes(answer.read())
    return file


def run(*command: str | Path, at: Path, **environment: str) -> None:
    found = subprocess.run(
        [str(part) for part in command],
        cwd=at,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here: its client was not generated")


def test_python(stack: Stack, token: str, schema: Path, tmp_path: Path) -> None:
    generator: Sequence[str] = (sys.executable, "-m", "openapi_python_client")
    made = tmp_path / "tagmill_client"
    run(
        *generator,
        "generate",
        "--path",
        schema,
        "--meta",
        "none",
        "--output-path",
        made,
        at=tmp_path,
    )
    flow = HERE / "flow.py"
    run(sys.executable, flow, stack.url, token, at=tmp_path, PYTHONPATH=str(tmp_path))


def test_typescript(stack: Stack, token: str, schema: Path, tmp_path: Path) -> None:
    need("node", "npm")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    run("npm", "install", "--silent", "--no-audit", *GENERATORS["npm"], at=tmp_path)
    programs = tmp_path / "node_modules/.bin"
    run(programs / "openapi-typescript", schema, "-o", "schema.d.ts", at=tmp_path)
    shutil.copy(HERE / "flow.ts", tmp_path)
    options = "--strict --target es2022 --module esnext --moduleResolution bundler --skipLibCheck"
    run(programs / "tsc", *options.split(), "flow.ts", at=tmp_path)
    run("node", "flow.js", stack.url, token, at=tmp_path)


def test_go(stack: Stack, token: str, schema: Path, tmp_path: Path) -> None:
    need("go")
    run("go", "mod", "init", "flow", at=tmp_path)
    generator = str(GENERATORS["go"])
    flags = ("-generate", "types,client", "-package", "main", "-o", "client.gen.go")
    run("go", "run", generator, *flags, schema, at=tmp_path)
    shutil.copy(HERE / "flow.go", tmp_path)
    run("go", "get", "./...", at=tmp_path)
    run("go", "run", ".", stack.url, token, at=tmp_path)
