"""`manage.py bench ...`: measured, on this machine, in one run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from loadtest.rebuild import Plan, RebuildBench
from loadtest.scratch import scratch_database
from loadtest.stack import StackError


class Command(BaseCommand):
    help = "Measure Tagmill on this machine, in a scratch database that is dropped afterwards."

    def add_arguments(self, parser: CommandParser) -> None:
        benches = parser.add_subparsers(dest="bench", required=True)
        rebuild = benches.add_parser(
            "rebuild", help="a rebuild, cold and warm, against xpath_exists on the same documents"
        )
        rebuild.add_argument("--nodes", type=int, default=10_000)
        rebuild.add_argument("--profile", choices=("lean", "server"), default="lean")
        rebuild.add_argument("--seed", type=int, default=1)
        rebuild.add_argument("--repetitions", type=int, default=3, help="medians are over these")
        rebuild.add_argument("--json", type=Path, metavar="FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console()
        with tempfile.TemporaryDirectory(prefix="tagmill-bench-") as directory:
            plan = Plan(
                nodes=options["nodes"],
                profile=options["profile"],
                seed=options["seed"],
                repetitions=options["repetitions"],
                log=Path(directory),
            )
            try:
                with scratch_database() as url:
                    bench = RebuildBench(plan, url, console)
                    try:
                        result = bench.run()
                    finally:
                        bench.close()
            except StackError as error:
                raise CommandError(str(error)) from None
        _print(console, result)
        if options["json"]:
            options["json"].write_text(json.dumps(result, indent=2) + "\n")
        if result["mismatches"]:
            raise CommandError(f"{result['mismatches']} answers differ from lxml's")


def _print(console: Console, result: dict[str, Any]) -> None:
    table = Table(
        title=f"{result['nodes']:,} nodes of {result['document_bytes_mean'] / 1000:.1f} kB"
    )
    for column in ("arm", "seconds", "nodes/s", "matched", "CPU seconds by process"):
        table.add_column(column, justify="left" if column in {"arm"} else "right")
    for arm in result["arms"]:
        cpu = ", ".join(f"{name} {seconds:.2f}" for name, seconds in arm["cpu_seconds"].items())
        table.add_row(
            arm["name"],
            f"{arm['seconds']:.3f}",
            f"{arm['nodes_per_second']:,.0f}",
            f"{arm['matched']:,}",
            cpu,
        )
    console.print(table)
    for name, ratio in result["ratios"].items():
        console.print(f"{name}: {ratio:.3f}")
    console.print(f"mismatches with lxml: {result['mismatches']}")
