"""A PostgreSQL that has libxml, to compare with: the user's, or the system's binaries.

The embedded PostgreSQL is built without libxml, so it has no `xpath_exists`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg

from loadtest.rig.stack import StackError, end_with_parent

# Debian keeps each major version's binaries here; other systems have them in PATH.
DEBIAN_BINARIES = Path("/usr/lib/postgresql")
START_SECONDS = 60
STOP_SECONDS = 30
# Followed by the process id of the run, by which the next one knows what a killed one left.
PREFIX = "tagmill-libxml-"


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
    _remove_leftovers()
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        _initialise(binaries, directory)
        with _server(binaries, directory) as url:
            yield url if _has_xpath_exists(url) else None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def find_binaries() -> Path | None:
    """The directory of the newest `initdb` and `postgres` that the system has."""
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


def _remove_leftovers() -> None:
    """The directories of runs that were killed; their servers ended with them."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        found = re.match(rf"{PREFIX}([0-9]+)-", directory.name)
        if found and not psutil.pid_exists(int(found[1])):
            shutil.rmtree(directory, ignore_errors=True)


def _initialise(binaries: Path, directory: Path) -> None:
    user = _user()
    if user:
        shutil.chown(directory, user)
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(  # noqa: S603 - the binaries found above, and no input of a user's
        [str(binaries / "initdb"), "-D", str(directory / "data"), *options],
        check=True,
        user=user,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )


@contextlib.contextmanager
def _server(binaries: Path, directory: Path) -> Iterator[str]:
    """A child of this process, not a daemon: it ends with us, however we end. Yields its URL."""
    # The documents fit in memory and nothing is written while it is measured; these only make the
    # preparation quick.
    quick = ["-c", "shared_buffers=1GB", "-c", "fsync=off", "-c", "max_wal_size=4GB"]
    where = ["-D", str(directory / "data"), "-k", str(directory), "-h", ""]
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the binaries found above
            [str(binaries / "postgres"), *where, *quick],
            user=_user(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            # Ctrl-C goes to us, who stop it when its connections are closed.
            start_new_session=True,
            # SIGINT is a fast shutdown, which does not wait for what is being answered.
            preexec_fn=functools.partial(end_with_parent, signal.SIGINT),  # noqa: PLW1509
        )
    try:
        url = f"postgresql:///postgres?host={directory}&user=postgres"
        _wait_until_ready(url, process, log)
        yield url
    finally:
        _stop(process)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Raises StackError."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        time.sleep(0.05)
    last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
    raise StackError(f"the PostgreSQL with libxml did not start: {last}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
