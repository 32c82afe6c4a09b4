"""`bench calibrate`: this machine's unit costs, for `manage.py capacity --calibrate FILE`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from rich.console import Console
from rich.table import Table

from fixtures.generate import PROFILES
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session, names_of, numbers
from loadtest.benches.calibration import MAX_ERROR, SMALL_SLOTS, CalibrateOptions, Calibration
from loadtest.benches.fit import DEPENDS
from loadtest.planner.costs import UNITS

TAGS = [1, 8, 64, 256, 500]


class CalibrateBench(Bench):
    name = "calibrate"
    help = "this machine's unit costs, for `manage.py capacity --calibrate`"
    # One for each profile.
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=4_096, help="of each profile")
        parser.add_argument(
            "--tags", type=numbers, default=TAGS, metavar="N,N", help="of a rebuild"
        )
        parser.add_argument(
            "--profile", type=names_of(PROFILES), default=list(PROFILES), metavar="NAME,NAME"
        )
        parser.add_argument("--repetitions", type=int, default=3, help="medians are over these")
        parser.add_argument(
            "--most-error", type=float, default=MAX_ERROR, help="of the fit, at its worst"
        )
        parser.add_argument("--evaluator", help="the workers' --evaluator")
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        if options["nodes"] < SMALL_SLOTS * 4:
            raise BenchError(f"--nodes must be at least {SMALL_SLOTS * 4}")
        bench.check_sizes(options, "nodes", "tags", "repetitions")
        tags = tuple(sorted(set(options["tags"])))
        chosen = CalibrateOptions(
            options["nodes"],
            tags,
            tuple(options["profile"]),
            *(options[name] for name in ("repetitions", "evaluator", "seed", "most_error")),
        )
        return Calibration(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title=f"microseconds of CPU, evaluator {result['evaluator']}")
        table.add_column("unit")
        for process in DEPENDS:
            table.add_column(process, justify="right")
        for unit in UNITS:
            costs = [result["seconds"][process].get(unit, 0.0) * 1e6 for process in DEPENDS]
            table.add_row(unit, *(f"{cost:,.4g}" if cost else "" for cost in costs))
        console.print(table)
        for measure, error in result["fit_error"].items():
            found = result["fit_worst"][measure]
            console.print(
                f"error of the fit, {measure}: {error:.0%} in the median, {found['error']:.0%} at "
                f"worst ({found['at']})"
            )
        for name, fleet in result["profiles"].items():
            console.print(f"a node, {name}: {fleet}")
        console.print(f"mismatches with lxml: {result['mismatches']}")

    def fault(self, result: dict[str, Any]) -> str | None:
        found = result["fit_worst"]["total"]
        if found["error"] > result["most_error"]:
            return (
                f"the fit misses an observation by {found['error']:.0%} ({found['at']}): calibrate "
                "again, with more --nodes or --repetitions, on an idle machine"
            )
        return super().fault(result)
