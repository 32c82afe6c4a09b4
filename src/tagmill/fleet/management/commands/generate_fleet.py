"""`manage.py generate_fleet`: a made-up fleet, into the database or into files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fixtures.generate import ProfileName, generate
from fixtures.loader import STEP, Loaded, load
from tagmill.errors import TagmillError


class Command(BaseCommand):
    help = "Generate a fleet of realistic machines: the same seed gives the same bytes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--nodes", type=int, required=True, help="how many")
        parser.add_argument("--seed", type=int, default=1, help="which fleet (default: 1)")
        parser.add_argument(
            "--profile",
            choices=["lean", "server"],
            default="lean",
            help="about 19 kB or about 60 kB a document (default: lean)",
        )
        parser.add_argument(
            "--clusters", type=int, default=1, metavar="K", help="share among site-1 to site-K"
        )
        parser.add_argument(
            "--start",
            type=int,
            default=None,
            metavar="I",
            help="number of the first node (default: as many as the database has; with --out: 0)",
        )
        parser.add_argument(
            "--out", type=Path, metavar="DIR", help="write files here; do not touch the database"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        nodes, clusters = options["nodes"], options["clusters"]
        if nodes < 0 or clusters < 1 or (options["start"] or 0) < 0:
            raise CommandError("--nodes and --start must not be negative, --clusters at least 1")
        console = Console()
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress:
            task = progress.add_task("generating nodes", total=nodes)
            done = self._run(options, lambda count: progress.advance(task, count))
        console.print(
            f"{done.nodes:,} nodes, {done.bytes:,} bytes "
            f"({done.lshw_bytes / max(done.nodes, 1):,.0f} a lshw document) "
            f"in {done.seconds:.1f} s: {done.nodes / max(done.seconds, 1e-9):,.0f} nodes/s"
        )

    def _run(self, options: dict[str, Any], on_progress: Callable[[int], None]) -> Loaded:
        nodes, seed, profile = options["nodes"], options["seed"], options["profile"]
        try:
            if options["out"]:
                start = options["start"] or 0
                return write_files(
                    options["out"],
                    nodes,
                    seed=seed,
                    profile=profile,
                    start=start,
                    on_progress=on_progress,
                )
            return load(
                nodes,
                seed=seed,
                profile=profile,
                clusters=options["clusters"],
                start=options["start"],
                on_progress=on_progress,
            )
        except (TagmillError, IntegrityError, OSError) as error:
            raise CommandError(str(error)) from error


def write_files(
    directory: Path,
    nodes: int,
    *,
    seed: int,
    profile: ProfileName,
    start: int,
    on_progress: Callable[[int], None],
) -> Loaded:
    """Write `<system_id>.<probe>.xml` for each document. Raises OSError."""
    begin = time.perf_counter()
    directory.mkdir(parents=True, exist_ok=True)
    lshw_bytes = total = 0
    for done, node in enumerate(generate(nodes, seed, profile, start=start), 1):
        for probe, xml in node.probes.items():
            data = xml.encode()
            (directory / f"{node.system_id}.{probe}.xml").write_bytes(data)
            total += len(data)
            lshw_bytes += len(data) if probe == "lshw" else 0
        if done % STEP == 0:
            on_progress(STEP)
    on_progress(nodes % STEP)
    return Loaded(nodes, lshw_bytes, total, time.perf_counter() - begin)
