"""`tagmill-worker cache status|verify`: what is in a cache's directory. Changes nothing, and may
run beside the worker."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tagmill_worker import pages
from tagmill_worker.cache import files, folders
from tagmill_worker.cache.files import Place
from tagmill_worker.cache.folders import Found
from tagmill_worker.errors import EvaluatorError
from tagmill_worker.evaluators import base, saved

OK, DAMAGED, BAD_SETTINGS = 0, 1, 2
VARIABLE = "TAGMILL_WORKER_CACHE_DIR"


def main(argv: list[str], environment: Mapping[str, str]) -> int:
    """0: all is well; 1: `verify` found files that would not be believed; 2: no directory."""
    parser = argparse.ArgumentParser(prog="tagmill-worker cache", allow_abbrev=False)
    parser.add_argument("what", choices=["status", "verify"])
    parser.add_argument(
        "--cache-dir", metavar="X", default=environment.get(VARIABLE), help=f"Also {VARIABLE}."
    )
    given = parser.parse_args(argv)
    if not given.cache_dir:
        _say(f"--cache-dir or {VARIABLE} is required")
        return BAD_SETTINGS
    try:
        found = list(_found(Path(given.cache_dir)))
        return _status(Path(given.cache_dir), found) if given.what == "status" else _verify(found)
    except OSError as error:
        _say(f"the directory cannot be read: {error}")
        return BAD_SETTINGS


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
        images = [size for item in here for size in item.images.values()]
        _say(f"  images       {sum(images)} bytes of {len(images)} pages")
        if written:
            now = time.time()
            _say(f"  written      {now - max(written):.0f} to {now - min(written):.0f} s ago")
        _say(f"  not needed   {sum(len(item.rest) for item in here)} files")
        _say(f"  not believed {sum(len(item.damaged) for item in here)} files")
    _say(f"set aside: {folders.aside_bytes(directory)} bytes")
    return OK


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
