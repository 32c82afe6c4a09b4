"""What is in the cache's directory: found, deleted, set aside. Runs on the disk's thread."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tagmill_worker.cache import files
from tagmill_worker.cache.files import Damaged, OtherVersion, Place, Stored

# Enough to look into what happened, and no more: they take room from what is good.
MAX_ASIDE = 8
IMAGE_FILES = (files.IMAGE, files.SLOTS)


@dataclass(slots=True)
class Found:
    """A partition's files. `chain`: those that make it, oldest first. `images`: bytes of the images
    of its pages, by the page's digest. `shared`: the number of the last that others have, 0 for
    none. `halves`: one file of an image without the other: a worker was killed between them, or the
    child is about to write the second. `rest`: what nobody needs; `damaged`: with the reason."""

    partition: int
    chain: list[Stored]
    images: dict[str, int] = field(default_factory=dict)
    shared: int = 0
    halves: list[Path] = field(default_factory=list)
    rest: list[Path] = field(default_factory=list)
    damaged: list[tuple[Path, str]] = field(default_factory=list)


def find(place: Place) -> Found:
    """By names and heads alone; reads no pages. Raises OSError."""
    stored: list[Stored] = []
    others: list[Path] = []
    damaged: list[tuple[Path, str]] = []
    for path in sorted(place.folder.iterdir()):
        if path.suffix != files.PAGES:
            others.append(path)
            continue
        try:
            stored.append(files.look(path))
        except OtherVersion:
            others.append(path)
        except Damaged as error:
            damaged.append((path, str(error)))
    chain = files.chain(stored)
    wanted = {digest for item in chain for _, _, digest in item.head.pages}
    found = Found(place.partition, chain, damaged=damaged)
    found.rest = [item.path for item in stored if item not in chain]
    numbers = {item.path.stem: item.head.number for item in chain}
    names = set(others)
    for path in others:
        if path.suffix == files.SHARED and path.stem in numbers:
            found.shared = max(found.shared, numbers[path.stem])
        elif path.suffix not in IMAGE_FILES or path.stem not in wanted:
            found.rest.append(path)
        elif all(path.with_suffix(suffix) in names for suffix in IMAGE_FILES):
            size = found.images.get(path.stem, 0) + path.stat().st_size
            found.images[path.stem] = size
        else:
            found.halves.append(path)
    return found


def open_incarnation(
    directory: Path, incarnation: str, damaged: Callable[[Path, str], None]
) -> list[Found]:
    """What is there of this incarnation; the rest is deleted, or set aside. Raises OSError."""
    kept = []
    for partition in files.partitions(directory / incarnation):
        place = Place(directory, incarnation, partition)
        found = find(place)
        for path, reason in found.damaged:
            damaged(path, reason)
            set_aside(directory, path)
        delete(found.rest + found.halves)
        if found.chain:
            kept.append(found)
        else:
            place.folder.rmdir()
    return kept


def delete_others(directory: Path, incarnation: str) -> None:
    """What was kept of other incarnations will never be believed again. Raises OSError."""
    for path in directory.iterdir():
        is_ours = path.is_dir() and files.is_incarnation(path.name)
        if is_ours and path.name != incarnation:
            _remove(path)


def _remove(path: Path) -> None:
    """A directory and what is in it. A child may be saving an image there: what comes of that goes
    the next time."""
    for root, _, names in os.walk(path, topdown=False):
        delete(Path(root, name) for name in names)
        try:
            Path(root).rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


def tidy(place: Place) -> dict[str, int]:
    """After a whole partition was written: what it replaces goes. The images that it still has."""
    found = find(place)
    # The child may be about to give one its name.
    delete(path for path in found.rest if path.suffix != files.PARTIAL)
    return found.images


def mark_shared(stored: Stored) -> None:
    """Others have this file, and those before it: a next start need not share them again."""
    stored.path.with_suffix(files.SHARED).touch()


def delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def delete_partition(place: Place) -> None:
    """All but the directory: a child that saves an image of it meanwhile is not to fail."""
    with contextlib.suppress(FileNotFoundError):
        for path in place.folder.iterdir():
            if path.suffix != files.PARTIAL:
                path.unlink(missing_ok=True)


def set_aside(directory: Path, path: Path) -> None:
    """Out of the way, to be looked at: the newest MAX_ASIDE of them. Raises OSError."""
    aside = directory / files.ASIDE
    aside.mkdir(exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside / f"{path.parent.parent.name}-{path.parent.name}-{path.name}")
    ordered = sorted(aside.iterdir(), key=lambda item: item.stat().st_ctime)
    delete(ordered[:-MAX_ASIDE])


def aside_bytes(directory: Path) -> int:
    try:
        return sum(item.stat().st_size for item in os.scandir(directory / files.ASIDE))
    except FileNotFoundError:
        return 0
