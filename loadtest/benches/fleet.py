"""`bench fleet`: simulated workers against one API server until it saturates.

The driver keeps every partition stale (it changes a node of each, as an upload would), so that
workers only wait where the system is too slow. Each step doubles the workers. The model is Fleet's
`osquery-perf`: a ramp, probabilities of failure, one seed.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.bench import Bench, BenchError, Session
from loadtest.benches.fleet_run import FleetOptions, FleetRun

# What an idle machine's other processes may use of a core before it is worth a word.
OTHERS_CORES = 0.3


class FleetBench(Bench):
    name = "fleet"
    help = "simulated workers against one API server until it saturates"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--workers", type=int, default=200, help="the ramp's end")
        parser.add_argument("--tags", type=int, default=FleetOptions.tags)
        parser.add_argument(
            "--nodes", type=int, default=FleetOptions.nodes, help="nodes of one partition"
        )
        parser.add_argument("--seconds", type=float, default=5.0, help="length of one step")
        parser.add_argument("--processes", type=int, default=1, help="load generators")
        parser.add_argument(
            "--evaluation", type=float, help="seconds that a worker evaluates one partition"
        )
        for share, text in (
            ("fetch", "leases that fetch the whole partition"),
            ("fail", "leases whose worker vanishes"),
            ("late", "results that come after their lease ended"),
            ("duplicate", "results sent twice"),
        ):
            parser.add_argument(f"--{share}", type=float, default=0.0, help=f"share of {text}")
        parser.add_argument("--seed", type=int, default=1)

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        if min(options[name] for name in ("workers", "tags", "nodes", "processes")) < 1:
            raise BenchError("--workers, --tags, --nodes and --processes must be positive")
        chosen = FleetOptions(
            workers=options["workers"],
            nodes=options["nodes"],
            tags=options["tags"],
            step_seconds=options["seconds"],
            generators=min(options["processes"], options["workers"]),
            evaluation=options["evaluation"],
            seed=options["seed"],
            **{name: options[name] for name in ("fetch", "fail", "late", "duplicate")},
        )
        return FleetRun(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        seconds = result["evaluation_seconds"]
        table = Table(title=f"workers that evaluate a partition in {seconds:.3f} s")
        for column in (
            "workers",
            "partitions/s",
            "lease p50 ms",
            "p95 ms",
            "complete p95 ms",
            "cores: API",
            "database",
            "generator",
            "errors",
        ):
            table.add_column(column, justify="right")
        for step in result["steps"]:
            used = step["cores"]
            table.add_row(
                str(step["workers"]),
                f"{step['completions_per_second']:,.1f}",
                f"{step['lease_p50_ms']:.1f}",
                f"{step['lease_p95_ms']:.1f}",
                f"{step['complete_p95_ms']:.1f}",
                f"{used.get('server', 0):.2f}",
                f"{used.get('database', 0):.2f}",
                f"{used.get('generator', 0):.2f}",
                str(sum(step["errors"].values())),
            )
        console.print(table)
        console.print(
            f"one API core feeds {result['workers_per_api_core']:.1f} workers; lease p95 "
            f"{result['lease_p95_ms']:.1f} ms; bottleneck: {result['bottleneck']}"
        )
        others = max(step["other_cores"] for step in result["steps"])
        if others > OTHERS_CORES:
            console.print(
                f"Other processes used up to {others:.1f} cores: the figures are a floor."
            )
        if result["bottleneck"] == "load_generator":
            console.print("The load generator was full, not the system: the figures are a floor.")

    def fault(self, result: dict[str, Any]) -> str | None:
        end = result["end"]
        if result["crashes"]:
            return "; ".join(result["crashes"])
        if end["stale_matches"]:
            return f"{end['stale_matches']} matches were still stale after {end['seconds']} s"
        if end["wrong_matches"]:
            return f"{end['wrong_matches']} matches are not what the workers sent"
        return None
