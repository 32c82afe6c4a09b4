"""What every `manage.py bench` subcommand is made of, and what they share."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fixtures.generate import PROFILES
from tagmill import config

# More of any than a machine would measure in a night: a slip of the keyboard.
MAX_SIZES = {
    "nodes": 1_000_000,
    "tags": 10_000,
    "repetitions": 100,
    "workers": 256,
    "uploaders": 256,
    "previews": 100_000,
    "clients": 1_000,
    "generated": 10_000,
    "processes": 64,
    "edits": 10_000,
    "opened": 100,
}


@dataclass(frozen=True)
class Session:
    """`url` is the scratch database's ("" for a bench without one), `log` a temporary directory."""

    console: Console
    url: str
    log: Path


class Bench(ABC):
    """One subcommand. `run` answers with what `--json` writes."""

    name: ClassVar[str]
    help: ClassVar[str]
    needs_database: ClassVar[bool] = True

    @abstractmethod
    def add_arguments(self, parser: ArgumentParser) -> None: ...

    @abstractmethod
    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        """Raises BenchError or StackError."""

    @abstractmethod
    def show(self, console: Console, result: dict[str, Any]) -> None: ...

    def fault(self, result: dict[str, Any]) -> str | None:
        """Why the run failed though it came to its end; None when it did not."""
        wrong = result.get("mismatches", 0)
        return f"{wrong} answers differ from lxml's" if wrong else None


class BenchError(Exception):
    """The bench cannot go on; the message is for the user."""


def numbers(text: str) -> list[int]:
    """A list option, as `1,10,100`. Raises ValueError."""
    found = [int(part) for part in text.split(",")]
    if not found or min(found) < 1:
        raise ValueError("positive whole numbers, separated by commas")
    return found


def names_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """A list option of some names, as `lean,server`."""

    def parse(text: str) -> list[str]:
        found = text.split(",")
        if unknown := set(found) - set(names):
            raise ArgumentTypeError(f"{', '.join(sorted(unknown))}: not one of {', '.join(names)}")
        return found

    return parse


def add_fleet(parser: ArgumentParser, nodes: int = 10_000, profile: str = "lean") -> None:
    """Which machines are made: `nodes`, `profile` and `seed` of the options."""
    parser.add_argument("--nodes", type=int, default=nodes)
    parser.add_argument("--profile", choices=PROFILES, default=profile)
    parser.add_argument("--seed", type=int, default=1)


def check_sizes(options: Mapping[str, Any], *names: str, least: int = 1) -> None:
    """Raises BenchError for an option, a number or a list of them, that cannot be measured."""
    for name in names:
        given = options[name]
        found = given if isinstance(given, list) else [given]
        if min(found) < least:
            raise BenchError(f"--{name} must be {'positive' if least else 'zero or more'}")
        if max(found) > MAX_SIZES[name]:
            raise BenchError(f"--{name} is at most {MAX_SIZES[name]:,}")


def progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


@contextlib.contextmanager
def settings(**values: object) -> Iterator[None]:
    """Tagmill's settings (`partition_slots=64`) of this process and those it starts meanwhile."""
    names = {f"TAGMILL_{name.upper()}": str(value) for name, value in values.items()}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    config.load.cache_clear()
    try:
        config.load()
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        config.load.cache_clear()


def machine() -> dict[str, Any]:
    """What the figures of a run depend on, for its JSON."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("Django", "Twisted", "lxml", "psycopg")},
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_json(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Raises BenchError when the file is not a JSON object."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise BenchError(f"{path}: not a JSON object")
    return value


def percentile(sorted_values: list[float], share: float) -> float:
    """The smallest value that `share` (0..1) of the values do not exceed; 0 of none."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]
