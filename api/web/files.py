"""The workbench's modules and styles, as they are in client/, under an address with their digest.

Modules name each other by relative paths, so the digest is one of the folder's name: with any file
changed, all of them have new addresses, and a browser may keep what it has for ever.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from django.templatetags.static import static

FOLDER = Path(__file__).resolve().parent / "client"
SERVED = frozenset({".mjs", ".css", ".svg", ".txt"})


def paths() -> list[str]:
    """Relative to FOLDER."""
    found = (path for path in FOLDER.rglob("*") if path.is_file() and path.suffix in SERVED)
    return sorted(str(path.relative_to(FOLDER)) for path in found)


@functools.cache
def prefix() -> str:
    """`workbench-` and the digest of all files, as they are when it is asked for first."""
    digest = hashlib.blake2b(digest_size=8)
    for path in paths():
        content = (FOLDER / path).read_bytes()
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return f"workbench-{digest.hexdigest()}"


def address(path: str) -> str:
    """Where a file of FOLDER is served."""
    return static(f"{prefix()}/{path}")


class Finder(BaseFinder):
    """What whitenoise serves at its start, beside the files of the admin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._storage = FileSystemStorage(location=FOLDER)
        # Whitenoise and collectstatic put it before each path.
        self._storage.prefix = prefix()  # type: ignore[attr-defined]

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Any]]:
        return ((path, self._storage) for path in paths())

    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        folder, _slash, rest = path.partition("/")
        is_there = folder == prefix() and rest in paths()
        found = str(FOLDER / rest) if is_there else None
        return [found] * is_there if find_all else found
