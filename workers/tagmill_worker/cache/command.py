"""`tagmill-worker cache status|verify|flush|drain`: what is in a cache's directory, whether it is
right, and that others have it. All but `drain` may run beside the worker."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tagmill_worker import pages, settings
from tagmill_worker.cache import draining, files, folders, lock
from tagmill_worker.cache.entries import Entry
from tagmill_worker.cache.files import Place
from tagmill_worker.cache.folders import Found
from tagmill_worker.errors import BadSettings, EvaluatorError, WorkerError
from tagmill_worker.evaluators import base, saved

OK, DAMAGED, BAD_SETTINGS = 0, 1, 2
DIRTY = 1
VARIABLE = "TAGMILL_WORKER_CACHE_DIR"
# Only read here: what a tier may take says nothing about sharing it.
BYTES = "1000000GiB"

COMMANDS = {
    "status": "what there is, and how much of it others lack",
    "verify": "read every file, as a worker would",
    "flush": "share what others lack; a worker that has the directory is asked to",
    "drain": "the same for a directory whose worker has stopped, before it goes for good",
}


def main(argv: list[str], environment: Mapping[str, str]) -> int:
    """0: all is well; 1: `verify` found files that would not be believed, `flush` or `drain` left
    something dirty; 2: no directory, or another setting that is missing."""
    parser = argparse.ArgumentParser(prog="tagmill-worker cache", allow_abbrev=False)
    commands = "; ".join(f"{name}: {text}" for name, text in COMMANDS.items())
    parser.add_argument("what", choices=list(COMMANDS), help=commands)
    parser.add_argument(
        "--cache-dir", metavar="X", default=environment.get(VARIABLE), help=f"Also {VARIABLE}."
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, metavar="N", help="How long to wait. Default: 600."
    )
    # Where to share it: the worker's own options.
    parser.add_argument("--server", metavar="X")
    parser.add_argument("--token", metavar="X")
    parser.add_argument("--token-file", metavar="FILE")
    given = parser.parse_args(argv)
    if not given.cache_dir:
        _say(f"--cache-dir or {VARIABLE} is required")
        return BAD_SETTINGS
    directory = Path(given.cache_dir)
    try:
        if given.what in ("flush", "drain"):
            return _flush(directory, given, environment)
        found = list(_found(directory))
        return _status(directory, found) if given.what == "status" else _verify(found)
    except (OSError, WorkerError) as error:
        _say(str(error))
        return BAD_SETTINGS


def _flush(directory: Path, given: argparse.Namespace, environment: Mapping[str, str]) -> int:
    # Nothing is made where there is nothing.
    if not draining.incarnations(directory):
        _say("nothing is dirty")
        return OK
    if not _is_free(directory):
        if given.what == "drain":
            raise BadSettings(f"a worker uses {directory}: stop it first, or `flush`")
        if not draining.ask(directory, given.seconds):
            _say(f"the worker has not answered within {given.seconds:g} s: its log says why")
    else:
        options = ["--cache-dir", str(directory), "--cache-bytes", BYTES]
        for name in ("server", "token", "token_file"):
            if getattr(given, name):
                options += ["--" + name.replace("_", "-"), getattr(given, name)]
        draining.share(settings.load(options, environment), given.seconds)
    left = draining.dirty(directory)
    for incarnation, partition in left:
        _say(f"dirty: {incarnation}/{partition}")
    _say(f"{len(left)} partitions are dirty" if left else "nothing is dirty")
    return DIRTY if left else OK


def _is_free(directory: Path) -> bool:
    """Whether no worker uses it. Raises BadSettings for a directory of somebody else."""
    if not (directory / lock.NAME).exists():
        raise BadSettings(f"{directory} is no cache's directory")
    try:
        lock.take(directory).close()
    except BadSettings:
        return False
    return True


def _found(directory: Path) -> Iterator[tuple[str, Found]]:
    """Each partition, with its incarnation."""
    for path in sorted(directory.iterdir()):
        if path.is_dir() and files.is_incarnation(path.name):
            for partition in files.partitions(path):
                yield path.name, folders.find(Place(directory, path.name, partition))


def _status(directory: Path, found: list[tuple[str, Found]]) -> int:
    for incarnation in dict.fromkeys(name for name, _ in found):
        here = [item for name, item in found if name == incarnation]
        stored = [one for item in here for one in item.chain]
        written = [one.path.stat().st_mtime for one in stored]
        _say(f"incarnation {incarnation}")
        _say(f"  partitions   {sum(bool(item.chain) for item in here)}")
        _say(f"  pages        {sum(one.size for one in stored)} bytes in {len(stored)} files")
        lacking = [item for item in here if item.chain and Entry.of(item).is_dirty]
        _say(f"  dirty        {len(lacking)} partitions, {sum(map(_size, lacking))} bytes")
        images = [size for item in here for size in item.images.values()]
        _say(f"  images       {sum(images)} bytes of {len(images)} pages")
        if written:
            now = time.time()
            _say(f"  written      {now - max(written):.0f} to {now - min(written):.0f} s ago")
        _say(f"  not needed   {sum(len(item.rest) for item in here)} files")
        _say(f"  not believed {sum(len(item.damaged) for item in here)} files")
    _say(f"set aside: {folders.aside_bytes(directory)} bytes")
    return OK


def _size(item: Found) -> int:
    return Entry.of(item).size


def _verify(found: list[tuple[str, Found]]) -> int:
    """Reads every file, as a worker would."""
    kernel = base.load("kernel") if base.has_kernel() else None
    good, bad = 0, 0
    for _, item in found:
        problems = list(item.damaged)
        for stored in item.chain:
            try:
                read = files.read(stored)
            except FileNotFoundError:
                # The worker has replaced it meanwhile.
                continue
            except (files.Damaged, OSError) as error:
                problems.append((stored.path, str(error)))
                continue
            good += 1
            for page in read:
                stem = stored.path.parent / files.digest(page.data)
                if kernel is None or stem.name not in item.images:
                    continue
                try:
                    saved.load(kernel, stem, partial(pages.nodes, page.data), 0.0)
                    good += 1
                except FileNotFoundError:
                    continue
                except (EvaluatorError, OSError) as error:
                    problems.append((stem.with_suffix(files.IMAGE), str(error)))
        for path, reason in problems:
            _say(f"{path}: {reason}")
        bad += len(problems)
    _say(f"{good} are good, {bad} would not be believed")
    return DAMAGED if bad else OK


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
