"""The PostgreSQL that is only compared with, where the system has its binaries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from loadtest.references.libxml_postgres import PREFIX, find_binaries, libxml_postgres
from tests.loadtest.conftest import ROOT, SECONDS

RUN = """
import signal
from loadtest.references.libxml_postgres import libxml_postgres
with libxml_postgres():
    print("ready", flush=True)
    signal.pause()
"""

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="no binaries of PostgreSQL")


@pytest.fixture(autouse=True)
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers are made: readable by those who run them, and short, as it names a socket."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="lx-") as name, pytest.MonkeyPatch.context() as patch:
        Path(name).chmod(0o755)
        patch.setenv("TMPDIR", name)
        patch.setattr(tempfile, "tempdir", name)
        patch.delenv("BENCH_DATABASE_URL", raising=False)
        yield Path(name)


def servers(directory: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in part for part in process.info["cmdline"] or [])
        and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_a_killed_run_leaves_no_server_and_the_next_one_removes_its_directory(
    directory: Path,
) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    started = servers(directory)
    assert started
    run.kill()
    run.communicate()
    psutil.wait_procs(started, timeout=SECONDS)
    assert not servers(directory)
    assert list(directory.glob(f"{PREFIX}{run.pid}-*"))
    with libxml_postgres():
        assert not list(directory.glob(f"{PREFIX}{run.pid}-*"))
    assert not list(directory.iterdir())


def test_an_interrupted_start_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        assert servers(directory)
        raise KeyboardInterrupt

    # The server has been started, and is asked whether it is ready.
    monkeypatch.setattr(psycopg, "connect", interrupted)
    with pytest.raises(KeyboardInterrupt), libxml_postgres():
        pass
    assert not servers(directory)
    assert not list(directory.iterdir())
