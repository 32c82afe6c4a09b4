"""One directory is used by one worker at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tagmill_worker.errors import BadSettings

NAME = "tagmill-cache.lock"


class Lock:
    """Holds the directory until `close`, or the end of the process, however that comes."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def take(directory: Path) -> Lock:
    """Makes the directory. Raises BadSettings where it is another's, and OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / NAME
    if not path.exists() and any(directory.iterdir()):
        # Whatever is of no use to the cache is deleted: not so what was there before it.
        raise BadSettings(
            f"--cache-dir: {directory} has files of somebody else: give the worker a directory of"
            " its own"
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise BadSettings(
            f"--cache-dir: {directory} is in use by another worker (process {holder or 'unknown'}):"
            " give each worker a directory of its own"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return Lock(descriptor)
