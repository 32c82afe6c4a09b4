"""What the report shows of the capacity planner: a plan, unit costs, and how true they are."""

from __future__ import annotations

from typing import Any

from loadtest.report import charts
from loadtest.report.pieces import Section, figure, number, table, text


def capacity(name: str, result: dict[str, Any]) -> Section:
    demand = result["demand"]
    names = list(result["stages"])
    chart = charts.bars(
        [*names, "simulation"],
        {"seconds": [*result["stages"].values(), result["simulated_seconds"]]},
        x="seconds",
    )
    rows = [
        ["workers", f"{result['workers']:,}"],
        ["API servers", f"{result['api_servers']:,}"],
        ["database cores", f"{result['database_cores']:,}"],
        ["database disk, GB", f"{result['database_bytes'] / 1e9:.2f}"],
        ["network, MB/s", f"{result['network_bytes_per_second'] / 1e6:.2f}"],
        ["memory a worker, MB", f"{result['worker_memory_bytes'] / 1e6:.0f}"],
        *([["options of a worker", result["worker_flags"]]] if "worker_flags" in result else []),
        ["seconds, formula", f"{result['seconds']:.2f}"],
        ["seconds, simulation", f"{result['simulated_seconds']:.2f}"],
        ["error", f"{result['error']:.1%}"],
        ["bottleneck", result["bottleneck"]],
    ]
    return [
        f"<h2>The plan: {demand['nodes']:,} nodes, {demand['tags']:,} tags in "
        f"{demand['target']:g} s</h2>",
        *figure(name, chart),
        table(["", ""], rows),
        f"<pre>{text(chr(10).join(result['formula']))}</pre>",
        *(f"<p>Assumed: {text(line)}.</p>" for line in result.get("assumptions", [])),
    ]


def check(name: str, result: dict[str, Any]) -> Section:
    rows = [
        [
            row.get("name", f"{row['state']}, {row['workers']} workers"),
            f"{row['seconds']:.3f}",
            f"{row['formula_seconds']:.3f} ({row['formula_error']:.0%})",
            f"{row['simulated_seconds']:.3f} ({row['simulation_error']:.0%})",
            f"{row['cpu_seconds_total']:.3f}",
            f"{row['formula_cpu_seconds']:.3f} ({row['cpu_error']:.0%})",
        ]
        for row in result["rows"]
    ]
    heads = ["sweep", "measured s", "formula", "simulation", "CPU s", "formula's"]
    # Files of before have one median over both states.
    by_state = result.get("errors_by_state", {"all": result["errors"]})
    errors = "; ".join(
        f"{text(state)}: " + ", ".join(f"{name} {value:.0%}" for name, value in found.items())
        for state, found in by_state.items()
    )
    groups = [row[0] for row in rows]
    chart = charts.bars(
        groups,
        {
            "measured": [row["seconds"] for row in result["rows"]],
            "formula": [row["formula_seconds"] for row in result["rows"]],
            "simulation": [row["simulated_seconds"] for row in result["rows"]],
        },
        x="seconds",
    )
    return [
        "<h2>The plan's formula and simulation, against the sweep</h2>",
        *figure(name, chart),
        table(heads, rows),
        f"<p>Median errors, {errors}.</p>",
        *(_worst(result["worst"]) if "worst" in result else []),
    ]


def calibrate(name: str, result: dict[str, Any]) -> Section:
    seconds = result["seconds"]
    units = list(dict.fromkeys(unit for costs in seconds.values() for unit in costs))
    rows = [
        [unit, *(number(seconds[name].get(unit, 0.0) * 1e6) for name in seconds)] for unit in units
    ]
    heads = ["µs of CPU for one", *seconds]
    out = [f"<h2>Unit costs ({text(result['evaluator'])})</h2>", table(heads, rows)]
    if "fit_worst" in result:
        out += _worst({"measure": "of the fit, CPU seconds"} | result["fit_worst"]["total"])
    return out


def _worst(found: dict[str, Any]) -> list[str]:
    return [
        f"<p>Worst error ({text(found['measure'])}): <b>{found['error']:.0%}</b>, "
        f"{text(found['at'])}.</p>"
    ]
