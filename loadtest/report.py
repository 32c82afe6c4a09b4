"""`bench report DIR`: one self-contained HTML page from the JSON files of the benches in DIR.

A file is recognised by its `bench` member, whatever its name; any may be missing, and of several of
one kind the newest is shown.
"""

from __future__ import annotations

import html
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtest import charts
from loadtest.bench import Bench, BenchError, Session, read_json

STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --ground: #fff; --faint: #59636e; --line: #d0d7de }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --ground: #0d1117; --faint: #9198a1; --line: #30363d } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
h1, h2 { line-height: 1.2 } h2 { margin-top: 3rem }
svg { width: 100%; height: auto; max-width: 46rem; color: var(--ink); display: block }
.wide { overflow-x: auto } .faint { color: var(--faint) }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem;
  text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th { white-space: normal; color: var(--faint); font-weight: 600 }
pre { overflow-x: auto; white-space: pre-wrap }
"""
TAKEN_WITH = {
    "rebuild": "manage.py bench rebuild",
    "evaluate": "manage.py bench evaluate",
    "sweep": "manage.py bench sweep",
    "growth": "manage.py bench growth",
    "fleet": "manage.py bench fleet",
    "capacity": "manage.py capacity",
    "check": "manage.py bench capacity",
    "calibrate": "manage.py bench calibrate",
}
Section = list[str]


def load_results(directory: Path) -> dict[str, dict[str, Any]]:
    """The newest result of each bench. Raises BenchError when there is none."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime):
        result = read_json(path)
        kind = str(result.get("bench", path.stem))
        if kind in TAKEN_WITH:
            found[kind] = result
    if not found:
        raise BenchError(f"{directory} has no JSON file of a bench")
    return found


def page(results: dict[str, dict[str, Any]]) -> str:
    """The HTML. The same results make the same page."""
    body: Section = ["<h1>Tagmill, measured</h1>"]
    machines = {_machine(result) for result in results.values() if "machine" in result}
    body += [f'<p class="faint">{_text(line)}</p>' for line in sorted(machines)]
    for kind, make in SECTIONS.items():
        if kind in results:
            body += [f"<section id={kind!r}>".replace("'", '"'), *make(results[kind])]
            body += [f'<p class="faint"><code>{TAKEN_WITH[kind]}</code></p>', "</section>"]
    if missing := [kind for kind in SECTIONS if kind not in results]:
        body.append(f'<p class="faint">Not measured here: {", ".join(missing)}.</p>')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tagmill, measured</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


# -- sections --------------------------------------------------------------------------------------


def _rebuild(result: dict[str, Any]) -> Section:
    arms = result["arms"]
    chart = charts.bars(
        [arm["name"] for arm in arms], {"seconds": [arm["seconds"] for arm in arms]}, x="seconds"
    )
    rows = [
        [
            arm["name"],
            f"{arm['seconds']:.3f}",
            f"{arm['nodes_per_second']:,.0f}",
            f"{arm['matched']:,}",
            _cpu(arm["cpu_seconds"]),
        ]
        for arm in arms
    ]
    return [
        f"<h2>A rebuild of {result['nodes']:,} nodes, against xpath_exists</h2>",
        *_figure("rebuild", chart),
        _table(["arm", "seconds", "nodes/s", "matched", "CPU seconds"], rows),
        _table(["ratio", ""], [[name, f"{value:.3f}"] for name, value in result["ratios"].items()]),
        _mismatches(result),
    ]


def _evaluate(result: dict[str, Any]) -> Section:
    arms = result["arms"]
    costs = {"us": [arm["us_per_document"] for arm in arms]}
    names = [arm["name"] for arm in arms]
    chart = charts.bars(names, costs, x="µs a document and expression (logarithmic)", log_x=True)
    rows = [[arm["name"], f"{arm['us_per_document']:,.2f}"] for arm in arms]
    return [
        f"<h2>One expression on one document of {result['document_bytes_mean'] / 1000:.0f} kB</h2>",
        *_figure("evaluate", chart),
        _table(["arm", "µs"], rows),
        _mismatches(result),
    ]


def _sweep(result: dict[str, Any]) -> Section:
    out = [f"<h2>Batches, read-ahead, workers: {result['nodes']:,} nodes</h2>"]
    for state in ("cold", "warm"):
        rows = [row for row in result["points"] if row["state"] == state]
        names = [_point(row) for row in rows]
        processes = sorted({name for row in rows for name in row["cpu_seconds"]})
        spent = {name: [row["cpu_seconds"].get(name, 0.0) for row in rows] for name in processes}
        chart = charts.bars(names, spent, x=f"CPU seconds, {state}", stacked=True)
        best = result["sweet_spot"][state]
        table = [
            [
                ("★ " if row == best else "") + _point(row),
                f"{row['cpu_seconds_total']:.2f}",
                _cpu(row["cpu_seconds"]),
                f"{row['round_trips']:,}",
                f"{row['sent_bytes'] / 1e6:.2f}",
                f"{row['memory_bytes']['worker'] / 1e6:.0f}",
                f"{row['seconds']:.3f} ({row['seconds_spread'][0]:.3f} to "
                f"{row['seconds_spread'][1]:.3f})",
            ]
            for row in rows
        ]
        heads = ["batch nodes / MiB / ahead MiB / workers", "CPU s", "by process"]
        heads += ["trips", "MB sent", "worker MB", "seconds (spread)"]
        out += [f"<h3>{state}</h3>", *_figure(f"sweep-{state}", chart), _table(heads, table)]
    return [*out, '<p class="faint">★ the sweet spot</p>', _mismatches(result)]


def _growth(result: dict[str, Any]) -> Section:
    points = result["points"]
    out = ["<h2>Growth</h2>"]
    for key, label in (("cold_seconds", "cold"), ("warm_seconds", "warm")):
        series = {
            f"{tags} tags": [(row["nodes"], row[key]) for row in points if row["tags"] == tags]
            for tags in sorted({row["tags"] for row in points})
        }
        chart = charts.lines(series, x="nodes", y=f"seconds, {label}", log_x=True, log_y=True)
        out += [f"<h3>{label}</h3>", *_figure(f"growth-{label}", chart)]
    most = max(row["tags"] for row in points)
    sizes = [row for row in points if row["tags"] == most]
    series = {
        "database": [(row["nodes"], row["database_bytes"] / 1e6) for row in sizes],
        "worker": [(row["nodes"], row["worker_memory_bytes"] / 1e6) for row in sizes],
    }
    chart = charts.lines(series, x="nodes", y="MB", log_x=True, log_y=True)
    rows = [
        [
            f"{row['nodes']:,}",
            str(row["tags"]),
            *(f"{row[key]:.3f}" for key in ("cold_seconds", "warm_seconds")),
            *(f"{row[key]:.2f}" for key in ("cold_cpu_seconds", "warm_cpu_seconds")),
            f"{row['worker_memory_bytes'] / 1e6:.0f}",
            f"{row['database_bytes'] / 1e6:.1f}",
        ]
        for row in points
    ]
    heads = ["nodes", "tags", "cold s", "warm s", "cold CPU s", "warm CPU s", "worker MB"]
    out += ["<h3>memory and disk</h3>", *_figure("growth-size", chart)]
    out.append(_table([*heads, "database MB"], rows))
    names = list(result["exponents"])
    exponents = [
        [along, *(_number(result[key][name]) for name in names)]
        for along, key in (("in nodes", "exponents"), ("in tags", "tag_exponents"))
    ]
    out.append(_table(["exponent", *names], exponents))
    if updates := result.get("updates"):
        out.append(
            f"<p>{updates['accepted_per_second']:.0f} updates a second were accepted while "
            f"rebuilds ran; from an update to its tags it took {updates['delay_p50_ms']:.0f} ms "
            f"(p95 {updates['delay_p95_ms']:.0f} ms).</p>"
        )
    return [*out, _mismatches(result)]


def _fleet(result: dict[str, Any]) -> Section:
    steps = result["steps"]
    throughput = charts.lines(
        {"partitions/s": [(step["workers"], step["completions_per_second"]) for step in steps]},
        x="workers",
        y="partitions/s",
        log_x=True,
    )
    latency = charts.lines(
        {
            f"lease {share}": [(step["workers"], step[f"lease_{share}_ms"]) for step in steps]
            for share in ("p50", "p95")
        },
        x="workers",
        y="ms",
        log_x=True,
    )
    processes = sorted({name for step in steps for name in step["cores"]})
    used = {
        name: [(step["workers"], step["cores"].get(name, 0.0)) for step in steps]
        for name in processes
    }
    rows = [
        [
            str(step["workers"]),
            f"{step['completions_per_second']:,.1f}",
            f"{step['lease_p50_ms']:.1f}",
            f"{step['lease_p95_ms']:.1f}",
            *(f"{step['cores'].get(name, 0.0):.2f}" for name in processes),
        ]
        for step in steps
    ]
    heads = ["workers", "partitions/s", "lease p50 ms", "p95 ms"]
    return [
        "<h2>Saturation</h2>",
        f"<p>One API core feeds {result['workers_per_api_core']:.1f} workers that evaluate a "
        f"partition in {result['evaluation_seconds']:.3f} s. First to saturate: "
        f"<b>{_text(result['bottleneck'])}</b>.</p>",
        *_figure("fleet-throughput", throughput),
        *_figure("fleet-latency", latency),
        *_figure("fleet-cores", charts.lines(used, x="workers", y="cores", log_x=True)),
        _table(heads + [f"cores: {name}" for name in processes], rows),
    ]


def _capacity(result: dict[str, Any]) -> Section:
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
        ["seconds, formula", f"{result['seconds']:.2f}"],
        ["seconds, simulation", f"{result['simulated_seconds']:.2f}"],
        ["error", f"{result['error']:.1%}"],
        ["bottleneck", result["bottleneck"]],
    ]
    return [
        f"<h2>The plan: {demand['nodes']:,} nodes, {demand['tags']:,} tags in "
        f"{demand['target']:g} s</h2>",
        *_figure("capacity", chart),
        _table(["", ""], rows),
        f"<pre>{_text(chr(10).join(result['formula']))}</pre>",
    ]


def _check(result: dict[str, Any]) -> Section:
    rows = [
        [
            f"{row['state']}, {row['workers']} workers",
            f"{row['seconds']:.3f}",
            f"{row['formula_seconds']:.3f} ({row['formula_error']:.0%})",
            f"{row['simulated_seconds']:.3f} ({row['simulation_error']:.0%})",
            f"{row['cpu_seconds_total']:.3f}",
            f"{row['formula_cpu_seconds']:.3f} ({row['cpu_error']:.0%})",
        ]
        for row in result["rows"]
    ]
    heads = ["sweep", "measured s", "formula", "simulation", "CPU s", "formula's"]
    errors = ", ".join(f"{name} {value:.0%}" for name, value in result["errors"].items())
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
        *_figure("check", chart),
        _table(heads, rows),
        f"<p>Median errors: {errors}.</p>",
    ]


def _calibrate(result: dict[str, Any]) -> Section:
    seconds = result["seconds"]
    units = list(dict.fromkeys(unit for table in seconds.values() for unit in table))
    rows = [
        [unit, *(_number(seconds[name].get(unit, 0.0) * 1e6) for name in seconds)] for unit in units
    ]
    heads = ["µs of CPU for one", *seconds]
    return [f"<h2>Unit costs ({_text(result['evaluator'])})</h2>", _table(heads, rows)]


SECTIONS: dict[str, Callable[[dict[str, Any]], Section]] = {
    "rebuild": _rebuild,
    "evaluate": _evaluate,
    "sweep": _sweep,
    "growth": _growth,
    "fleet": _fleet,
    "capacity": _capacity,
    "check": _check,
    "calibrate": _calibrate,
}


# -- pieces ----------------------------------------------------------------------------------------


def _figure(name: str, svg: str) -> list[str]:
    return ["<figure>", charts.unique_ids(svg, name), "</figure>"]


def _table(heads: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in heads)
    lines = ("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _text(value: object) -> str:
    return html.escape(str(value))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _cpu(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())


def _point(row: dict[str, Any]) -> str:
    mib = 1 << 20
    return (
        f"{row['batch_nodes']} / {row['batch_bytes'] / mib:g} / {row['prefetch'] / mib:g} / "
        f"{row['workers']}"
    )


def _machine(result: dict[str, Any]) -> str:
    it = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in it["versions"].items())
    memory = it["memory_bytes"] / (1 << 30)
    return (
        f"{it['processor']}, {it['cores']} cores, {memory:.0f} GiB, {it['system']}, "
        f"Python {it['python']}, {versions}"
    )


def _mismatches(result: dict[str, Any]) -> str:
    return f"<p>Answers that differ from lxml's: <b>{result.get('mismatches', 0)}</b>.</p>"


class ReportBench(Bench):
    name = "report"
    help = "one HTML page with charts from the JSON files of other benches"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR", help="with the JSON files")
        parser.add_argument("--out", type=Path, metavar="FILE", help="instead of DIR/report.html")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        results = load_results(options["directory"])
        out = options["out"] or options["directory"] / "report.html"
        try:
            text = page(results)
        except (KeyError, TypeError, ValueError) as error:
            raise BenchError(f"a JSON file is not what this version writes: {error!r}") from error
        out.write_text(text, encoding="utf-8")
        return {"bench": "report", "page": str(out), "sections": list(results), "bytes": len(text)}

    def show(self, console: Console, result: dict[str, Any]) -> None:
        console.print(f"{result['page']}: {', '.join(result['sections'])}", soft_wrap=True)
