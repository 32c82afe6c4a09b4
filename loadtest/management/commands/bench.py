"""`manage.py bench ...`: measured, on this machine, in one run."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from loadtest.bench import Bench, BenchError, Session, write_json
from loadtest.benches.attack import AttackBench
from loadtest.benches.batch import BatchBench
from loadtest.benches.cache import CacheBench
from loadtest.benches.calibrate import CalibrateBench
from loadtest.benches.change import ChangeBench
from loadtest.benches.check import CheckBench
from loadtest.benches.churn import ChurnBench
from loadtest.benches.evaluate import EvaluateCommand
from loadtest.benches.fleet import FleetBench
from loadtest.benches.growth import GrowthBench
from loadtest.benches.lists import ListsBench
from loadtest.benches.polls import PollsBench
from loadtest.benches.preview import PreviewBench
from loadtest.benches.rebuild import RebuildCommand
from loadtest.benches.sweep import SweepBench
from loadtest.benches.tiers import TiersBench
from loadtest.benches.turnover import TurnoverBench
from loadtest.benches.web import WebBench
from loadtest.chaos.bench import ChaosBench
from loadtest.chaos.upgrade import UpgradeBench
from loadtest.report.report import ReportBench
from loadtest.rig.scratch import scratch_database
from loadtest.rig.stack import StackError

BENCHES: tuple[type[Bench], ...] = (
    RebuildCommand,
    EvaluateCommand,
    FleetBench,
    ChangeBench,
    PreviewBench,
    PollsBench,
    CacheBench,
    ListsBench,
    BatchBench,
    SweepBench,
    TiersBench,
    GrowthBench,
    CalibrateBench,
    CheckBench,
    ChurnBench,
    TurnoverBench,
    AttackBench,
    ChaosBench,
    UpgradeBench,
    WebBench,
    ReportBench,
)
INTERRUPTED = 130  # what a shell says of a process that Ctrl-C ended


class Command(BaseCommand):
    help = "Measure Tagmill on this machine, in a scratch database that is dropped afterwards."

    def add_arguments(self, parser: CommandParser) -> None:
        benches = parser.add_subparsers(dest="bench", required=True)
        for bench in BENCHES:
            sub = benches.add_parser(bench.name, help=bench.help)
            sub.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
            bench().add_arguments(sub)

    def handle(self, *args: Any, **options: Any) -> None:
        # Like Ctrl-C: processes and database go on the way out.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A shell starts what it puts in the background with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        bench = next(item for item in BENCHES if item.name == options["bench"])()
        console = Console()
        try:
            result = self._run(bench, options, console)
        except (BenchError, StackError, psycopg.Error) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=INTERRUPTED) from None
        bench.show(console, result)
        if options["json"]:
            write_json(options["json"], result)
        if fault := bench.fault(result):
            raise CommandError(fault)

    def _run(self, bench: Bench, options: dict[str, Any], console: Console) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryDirectory(prefix="tagmill-bench-"))
            url = stack.enter_context(scratch_database()) if bench.needs_database else ""
            return bench.run(options, Session(console, url, Path(log)))
