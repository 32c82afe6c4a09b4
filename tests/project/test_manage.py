"""`manage.py` says in one line what is wrong, which database is meant, and which Tagmill it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.db import DatabaseError

import tagmill_command
from tagmill import config, database, program
from tagmill.errors import ConfigurationError
from tagmill_wire import __version__

NOBODY = "postgresql://me:hidden@127.0.0.1:1/tags"


def manage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=program.ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_says_its_own_version() -> None:
    assert manage("version").stdout.startswith(f"Tagmill {__version__} (")


def test_help_knows_the_worker() -> None:
    assert "--evaluation-bytes" in manage("help", "worker").stdout


def without_bench_libraries(*arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = "import runpy, sys; sys.modules.update(simpy=None, matplotlib=None)"
    code = f"{hidden}; sys.argv[0] = 'manage.py'; runpy.run_path('manage.py', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=program.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_command_that_needs_more_than_a_server_says_what_to_install() -> None:
    for command in ("bench", "capacity"):
        found = without_bench_libraries(command, "--help")
        assert found.returncode == 2
        assert f"manage.py {command} needs simpy and matplotlib" in found.stderr
        assert "pip install -r requirements-bench.txt" in found.stderr


def test_the_demo_and_the_other_commands_need_what_a_server_needs() -> None:
    assert "--exit" in without_bench_libraries("demo", "--help").stdout
    listed = without_bench_libraries("help").stdout.split()
    assert "demo" in listed and "bench" not in listed


def test_a_database_that_does_not_answer_is_named_in_one_line_without_its_password() -> None:
    found = manage("worker_token", "w", "--all-clusters", DATABASE_URL=NOBODY)
    assert found.returncode == 2
    first, second = found.stderr.splitlines()
    assert first == "Database: tags at 127.0.0.1:1 (DATABASE_URL)"
    assert "does not answer" in second and "DATABASE_URL" in second
    assert "hidden" not in found.stderr


def test_a_damaged_embedded_database_is_one_message_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "postgres"
    directory.mkdir()
    (directory / "PG_VERSION").write_text("18\n")
    (directory / "log").write_text("".join(f"old line {number}\n" for number in range(100)))
    (directory / "log").chmod(0o666)
    found = manage("tokens", DATABASE_URL="", TAGMILL_VAR=str(tmp_path))
    assert found.returncode == 2
    assert "does not start" in found.stderr and "docs/backup.md" in found.stderr
    assert f"The end of {directory / 'log'}:" in found.stderr
    assert "postgresql.conf" in found.stderr.splitlines()[-1] or "old line 99" in found.stderr
    assert "Traceback" not in found.stderr and "old line 90\n" not in found.stderr


def test_a_data_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = manage("tokens", DATABASE_URL="", TAGMILL_VAR=str(tmp_path / "file"))
    assert found.returncode == 2
    assert "TAGMILL_VAR names another" in found.stderr and "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) == 2


def test_with_a_database_of_its_own_nothing_needs_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = manage("tokens", DATABASE_URL=NOBODY, TAGMILL_VAR=str(tmp_path / "file"))
    assert "does not answer" in found.stderr and str(tmp_path) not in found.stderr


def test_a_library_that_is_missing_is_one_line() -> None:
    found = subprocess.run(
        [sys.executable, "-S", "manage.py", "tokens"],
        cwd=program.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1 and "make install" in found.stderr


def test_a_database_without_tables_says_to_migrate() -> None:
    cause = psycopg.errors.UndefinedTable("no such table")
    error = DatabaseError("no such table")
    error.__cause__ = cause
    assert "manage.py migrate" in tagmill_command.problem(error)


def test_without_an_url_the_embedded_database_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = config.Config(database_url="", DATABASE_URL="")
    assert database.described(here).startswith(f"embedded, at {here.var}")


def test_sizes_of_the_server_take_units() -> None:
    assert config.Config(document_bytes="2MiB").document_bytes == 2 << 20
    assert config.Config(request_bytes="16 MB").request_bytes == 16_000_000


def test_useradd_is_found_where_debian_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(database, "SYSTEM_PATHS", ("/nothing",))
    with pytest.raises(ConfigurationError, match="useradd"):
        database.find_useradd()
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    database.find_useradd()
    assert "/usr/sbin" in os.environ["PATH"].split(os.pathsep)
