"""A PostgreSQL that has libxml, to compare with: the user's, or the system's binaries.

The embedded PostgreSQL is built without libxml, so it has no `xpath_exists`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg

# Debian keeps each major version's binaries here; other systems have them in PATH.
DEBIAN_BINARIES = Path("/usr/lib/postgresql")
START_SECONDS = 60


@contextlib.contextmanager
def libxml_postgres() -> Iterator[str | None]:
    """The URL of a server that has `xpath_exists`, or None. A server started here is removed."""
    given = os.environ.get("BENCH_DATABASE_URL")
    if given:
        yield given if _has_xpath_exists(given) else None
        return
    binaries = find_binaries()
    if binaries is None:
        yield None
        return
    directory = Path(tempfile.mkdtemp(prefix="tagmill-libxml-"))
    try:
        url = _start(binaries, directory)
        try:
            yield url if _has_xpath_exists(url) else None
        finally:
            _control(binaries, directory, "stop", "-m", "immediate")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def find_binaries() -> Path | None:
    """The directory of the newest `initdb` and `pg_ctl` that the system has."""
    versions = sorted(
        (path for path in DEBIAN_BINARIES.glob("*/bin") if (path / "initdb").exists()),
        key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0,
    )
    if versions:
        return versions[-1]
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _has_xpath_exists(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT xpath_exists('/a', '<a/>'::xml)")
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


def _user() -> str | None:
    """PostgreSQL refuses to run as root: then somebody with fewer rights runs it."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "pgserver", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return None


def _start(binaries: Path, directory: Path) -> str:
    user = _user()
    if user:
        shutil.chown(directory, user)
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    _run([binaries / "initdb", "-D", directory / "data", *options])
    # The documents fit in memory and nothing is written while it is measured; these only make the
    # preparation quick.
    settings = f"-k {directory} -h '' -c shared_buffers=1GB -c fsync=off -c max_wal_size=4GB"
    _control(binaries, directory, "start", "-w", "-t", str(START_SECONDS), "-o", settings)
    return f"postgresql:///postgres?host={directory}&user=postgres"


def _control(binaries: Path, directory: Path, *arguments: str) -> None:
    where: list[str | Path] = ["-D", directory / "data", "-l", directory / "log"]
    _run([binaries / "pg_ctl", "-s", *where, *arguments])


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(  # noqa: S603 - the binaries found above, and no input of a user's
        [str(part) for part in command],
        check=True,
        user=_user(),
        stdout=subprocess.DEVNULL,
        cwd="/",
    )
