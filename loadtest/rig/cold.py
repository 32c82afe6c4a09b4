"""A PostgreSQL that can be made cold: stopped, its files dropped from the page cache, started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import psutil
from psycopg import sql

from loadtest.bench import BenchError
from loadtest.rig.postgres import Postgres

# Vacuum runs when a bench says so, and never in the midst of a measurement.
SETTINGS = {"autovacuum": "off", "track_io_timing": "on", "max_connections": 120}
# File systems without a disk below: nothing of theirs can be dropped.
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
END_MILLISECONDS = 10_000

_END = """
SELECT pg_terminate_backend(pid, %s)
  FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_READS = """
SELECT coalesce(sum(reads), 0)::bigint,
       coalesce(sum(read_bytes), 0)::bigint / current_setting('block_size')::int,
       coalesce(sum(read_time), 0)::float8
  FROM pg_stat_io
 WHERE object = 'relation'
"""


class Reads(NamedTuple):
    """What PostgreSQL has read of its tables and indexes into its own memory. `operations`: one may
    read several blocks. `milliseconds`: how long its processes waited for them."""

    operations: int
    blocks: int
    milliseconds: float


class ColdPostgres:
    """Use it as a context manager: it runs from `with` to its end."""

    def __init__(self, directory: Path) -> None:
        """Raises BenchError where the directory is in memory."""
        if file_system(directory.parent) in IN_MEMORY:
            raise BenchError(
                f"{directory.parent} is in memory, and nothing there is ever cold: set TMPDIR to a"
                " directory on a disk"
            )
        self._postgres = Postgres(directory, settings=SETTINGS)

    def __enter__(self) -> ColdPostgres:
        self._postgres.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._postgres.is_alive:
            self._postgres.stop()

    @property
    def url(self) -> str:
        return self._postgres.url

    @property
    def pid(self) -> int:
        return int((self._postgres.directory / "postmaster.pid").read_text().split()[0])

    def chill(self) -> None:
        """Nothing of the database is in any memory of this machine. Nobody may be connected."""
        self._postgres.stop()
        drop_files(self._postgres.directory)
        self._postgres.start()
        # The first connection reads the catalog, which is nobody's work that is measured.
        self.reads()

    def tidy(self) -> None:
        with self._postgres.connect() as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")

    def rewrite(self, table: str) -> None:
        """As if the table had just been filled in its present order."""
        with self._postgres.connect() as connection:
            connection.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(table)))

    def reads(self) -> Reads:
        """So far. It ends every other connection: a backend has counted all that it did only when
        it ends."""
        with self._postgres.connect() as connection:
            connection.execute(_END, [END_MILLISECONDS])
            row = connection.execute(_READS).fetchone()
        return Reads(*row) if row else Reads(0, 0, 0.0)

    def disk_bytes(self) -> int:
        """What the processes that run now have read of the disk so far, read-ahead included."""
        root = psutil.Process(self.pid)
        return sum(_disk_bytes(process) for process in (root, *root.children()))


def _disk_bytes(process: psutil.Process) -> int:
    try:
        return int(process.io_counters().read_bytes)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def drop_files(directory: Path) -> None:
    """Let the kernel forget what it keeps of the files below the directory."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                _drop(path)


def _drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # What is not written yet stays where it is.
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def file_system(path: Path) -> str:
    """Its type, as `ext4`; "" where that is not known."""
    place = path.resolve()
    found = {
        Path(part.mountpoint): part.fstype
        for part in psutil.disk_partitions(all=True)
        if place.is_relative_to(part.mountpoint)
    }
    return found[max(found, key=lambda mount: len(mount.parts))] if found else ""
